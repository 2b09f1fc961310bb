"""Speed and memory of edgegen next to other runtimes (`python -m bench.compare`)."""
