"""Components of a layer, one file each: all that is known of one but its graph, which is in ``graph/``."""
