"""Data folders: text for BERT, photos for ResNet."""
