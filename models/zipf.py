"""Synthetic numbers of rows as Zipf's law has them: a few are looked up very often, most hardly ever."""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray


def zipf(count: int, exponent: float, draws: "NDArray[Any]") -> "NDArray[Any]":
    """Numbers from 0, of which the k-th is drawn with a probability proportional to k^-exponent: int32, one for each
    draw, which is between 0 and 1."""
    return drawn(_sums(count, exponent), draws)


def drawn(sums: "NDArray[Any]", draws: "NDArray[Any]") -> "NDArray[Any]":
    """Numbers from 0, of which each is drawn with a probability proportional to its weight: int32, one for each draw,
    which is between 0 and 1. sums: of the weights up to each number, itself included."""
    import numpy

    found: NDArray[Any] = numpy.searchsorted(sums, draws * sums[-1], side="right").astype("int32")
    return found


@lru_cache(maxsize=2)
def _sums(count: int, exponent: float) -> "NDArray[Any]":
    import numpy

    sums: NDArray[Any] = numpy.cumsum(numpy.arange(1, count + 1, dtype="float64") ** -exponent)
    return sums
