"""The colours of every figure, light and dark, shared by the page and the pictures.

Categorical series (`s0` to `s7`) differ in both hue and lightness, so that everyone can tell them apart; ordered series
(widths, blocks) lie on a ramp from light to dark. `tests/charts/test_colours.py` checks both in simulations of the
three kinds of colour blindness.
"""

from collections.abc import Sequence
from typing import Literal

Theme = Literal["light", "dark"]
Lab = tuple[float, ...]  # of three

# By role: on a light page, and on a dark one.
_COLOURS = {
    "paper-bg": ("#fbfaf8", "#16181c"),
    "raised": ("#ffffff", "#1d2025"),
    "ink": ("#23262b", "#e6e4df"),
    "soft": ("#5d636d", "#a3a8b1"),
    "rule": ("#e3e0da", "#33373e"),
    "grid": ("#ebe8e2", "#2a2e34"),
    "focus": ("#1f6feb", "#7fb2ff"),
    "code": ("#f1efea", "#24282e"),
    "mean": ("#2a3a8c", "#93adf5"),
    "median": ("#c0201a", "#d9694a"),
    "paper": ("#7d7d7d", "#9da2aa"),
    "miss": ("#a89018", "#f2ae14"),
    "s0": ("#2a3a8c", "#93adf5"),
    "s1": ("#2f8a88", "#4fe0b4"),
    "s2": ("#a89018", "#f2ae14"),
    "s3": ("#c0201a", "#d9694a"),
    "s4": ("#8a48cf", "#7a7cf5"),
    "s5": ("#3b9de6", "#c9e6fb"),
    "s6": ("#6c1345", "#c48ab0"),
    "s7": ("#33684a", "#f2de6a"),
    "ramp-a": ("#cf9214", "#5068c4"),
    "ramp-b": ("#2f7f8f", "#5cb8b0"),
    "ramp-c": ("#20207a", "#ffe9a0"),
}
THEMES: dict[Theme, dict[str, str]] = {
    "light": {role: light for role, (light, _) in _COLOURS.items()},
    "dark": {role: dark for role, (_, dark) in _COLOURS.items()},
}

# Oklab (Ottosson 2020): from linear red, green and blue to cone responses, and from their cube roots to lightness and
# two opponent colours. Browsers use it to mix `in oklab`, so pictures do as well.
_CONES = (
    (0.4122214708, 0.5363325363, 0.0514459929),
    (0.2119034982, 0.6806995451, 0.1073969566),
    (0.0883024619, 0.2817188376, 0.6299787005),
)
_LAB = (
    (0.2104542553, 0.7936177850, -0.0040720468),
    (1.9779984951, -2.4285922050, 0.4505937099),
    (0.0259040371, 0.7827717662, -0.8086757660),
)
_ROOTS = (
    (1.0, 0.3963377774, 0.2158037573),
    (1.0, -0.1055613458, -0.0638541728),
    (1.0, -0.0894841775, -1.2914855480),
)
_LINEAR = (
    (4.0767416621, -3.3077115913, 0.2309699292),
    (-1.2684380046, 2.6097574011, -0.3413193965),
    (-0.0041960863, -0.7034186147, 1.7076147010),
)


def style_sheet() -> str:
    """Return the colours as CSS variables: the system's theme, unless the reader chooses the other."""
    light, dark = (" ".join(f"--{name}: {colour};" for name, colour in theme.items()) for theme in THEMES.values())
    return (
        f":root {{ {light} color-scheme: light; }}\n"
        f'@media (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {{ {dark} color-scheme: dark; }} }}\n'
        f':root[data-theme="dark"] {{ {dark} color-scheme: dark; }}\n'
    )


def ramp(place: float, theme: Theme) -> str:
    """Return the colour at a place on the ramp, from 0 to 1.

    Example:
        >>> ramp(0.0, "light"), ramp(0.5, "light"), ramp(1.0, "light")
        ('#cf9214', '#2f7f8f', '#20207a')
    """
    ends = ("ramp-a", "ramp-b") if place < 0.5 else ("ramp-b", "ramp-c")
    part = 2 * place if place < 0.5 else 2 * place - 1
    first, second = (to_lab(linear(THEMES[theme][end])) for end in ends)
    mixed = [a + part * (b - a) for a, b in zip(first, second, strict=True)]
    return _written(_times(_LINEAR, [root**3 for root in _times(_ROOTS, mixed)]))


def linear(colour: str) -> Lab:
    """Convert "#rrggbb" to linear light."""
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return tuple(v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)


def to_lab(light: Sequence[float]) -> Lab:
    """Convert to lightness and opponent colours, whose distances match perception: 1 from black to white."""
    return _times(_LAB, [max(cone, 0.0) ** (1 / 3) for cone in _times(_CONES, light)])


def _times(matrix: Sequence[Lab], of: Sequence[float]) -> Lab:
    return tuple(sum(a * b for a, b in zip(row, of, strict=True)) for row in matrix)


def _written(light: Lab) -> str:
    parts = (12.92 * v if v <= 0.0031308 else 1.055 * v ** (1 / 2.4) - 0.055 for v in light)
    return "#" + "".join(f"{round(255 * min(max(v, 0.0), 1.0)):02x}" for v in parts)
