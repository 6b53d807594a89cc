"""How well one colour can be seen on another."""

from __future__ import annotations


def contrast(colour: str, ground: str) -> float:
    """Their ratio as WCAG 2.2 defines it, from 1 to 21. Colours: #rgb or #rrggbb."""
    dim, bright = sorted((_brightness(colour), _brightness(ground)))
    return (bright + 0.05) / (dim + 0.05)


def _brightness(colour: str) -> float:
    """Relative luminance."""
    long = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    parts = [int(long[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
