"""One run: what code it uses, how it is executed, what it tells."""
