"""Dockerfiles of the frameworks' images: Dockerfile.j2, and what it gives for each framework and device."""
