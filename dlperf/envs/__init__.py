"""The environments that frameworks run in."""
