"""Numbers of parameters from which a model is calibrated and compared on less text: more takes long for little."""

LARGE, LARGER = 100_000_000, 400_000_000
