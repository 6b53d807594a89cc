"""Was it the same work?"""
