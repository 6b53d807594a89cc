"""The kinds of systems: whose scripts a row runs."""
