"""Files of an export that are no part of a bundle, its threads and its progress."""
