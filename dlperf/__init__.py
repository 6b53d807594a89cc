"""dlperf trains the same models in every deep-learning framework and reports who was faster, and how sure we are.

This file travels with every worker, so it is valid on Python 3.7 and imports nothing.
"""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name == "load":  # pandas is slow to import and absent from the workers
        from dlperf.comparison.frame import load

        return load
    raise AttributeError("module 'dlperf' has no attribute " + repr(name))
