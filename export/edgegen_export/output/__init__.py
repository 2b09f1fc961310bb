"""Writing a bundle: atomic, and resumed where an interrupted export left off."""
