"""dlperf trains the same models in every deep-learning framework and reports who was faster, and how sure we are.

This file travels with every worker, so it is valid on Python 3.7 and imports nothing.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:  # what type checkers are to see of the two names below
    from dlperf.comparison.frame import load as load
    from dlperf.library import compare as compare


def __getattr__(name: str) -> object:
    """What is slow to import, or absent from the workers, when it is asked for."""
    if name == "load":
        from dlperf.comparison.frame import load

        return load
    if name == "compare":  # a module that can be called
        from importlib import import_module

        return import_module("dlperf.compare")
    raise AttributeError("module 'dlperf' has no attribute " + repr(name))
