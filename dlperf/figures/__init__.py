"""Numbers, from records. Pure."""
