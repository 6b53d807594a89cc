"""What adapter.toml says."""
