"""edgegen on emulated Raspberry Pis: token ids, and CPU time next to other ways of running the same model."""
