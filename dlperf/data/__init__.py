"""Data folders: text and pairs of sentences, rows for models whose parameters are tables, photos."""
