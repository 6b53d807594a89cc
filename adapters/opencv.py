"""JPEG files decoded, cut and scaled by OpenCV, for the loaders that call it from Python. What is done to an image
stands in dlperf.models.photos."""

import sys
from typing import Tuple

import numpy


def one_thread() -> None:
    """A loader's own threads or processes are as many as it may use. ImportError where there is no OpenCV."""
    import cv2

    cv2.setNumThreads(0)


def decode(file: str) -> numpy.ndarray:
    """uint8 (height, width, 3), red, green, blue; black where the file cannot be decoded."""
    import cv2

    pixels: numpy.ndarray = cv2.imread(file, cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION)
    if pixels is None:
        print(f"{file}: cannot be decoded, and is black in this run", file=sys.stderr)
        return numpy.zeros((1, 1, 3), "uint8")
    return pixels


def scaled(pixels: numpy.ndarray, part: Tuple[int, int, int, int], size: int) -> numpy.ndarray:
    """uint8 (size, size, 3) of a part: top, left, height, width."""
    import cv2

    top, left, height, width = part
    return cv2.resize(pixels[top : top + height, left : left + width], (size, size), interpolation=cv2.INTER_LINEAR)  # type: ignore[no-any-return]
