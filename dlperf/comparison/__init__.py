"""A comparison at work: its folder, its runs, its progress."""
