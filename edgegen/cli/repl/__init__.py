"""REPL of ``edgegen chat``: lines become commands and turns, whatever reads the lines and shows the answers."""
