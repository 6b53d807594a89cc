"""Figures from logs of training scripts that others ran."""
