"""From what was asked to what is planned."""
