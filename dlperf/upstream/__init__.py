"""Third-party training scripts."""
