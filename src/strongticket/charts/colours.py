"""The colours of every figure, light and dark, shared by the page and the pictures.

Categorical series (`s0` to `s7`) differ in both hue and lightness, so that everyone can tell them apart; ordered series
(widths, blocks) lie on a ramp from light to dark. `tests/charts/test_colours.py` checks both in simulations of the
three kinds of colour blindness.
"""

from typing import Literal

Theme = Literal["light", "dark"]
Lab = tuple[float, float, float]

LIGHT = {
    "paper-bg": "#fbfaf8",
    "raised": "#ffffff",
    "ink": "#23262b",
    "soft": "#5d636d",
    "rule": "#e3e0da",
    "grid": "#ebe8e2",
    "focus": "#1f6feb",
    "code": "#f1efea",
    "mean": "#2a3a8c",
    "median": "#c0201a",
    "paper": "#7d7d7d",
    "miss": "#a89018",
    "s0": "#2a3a8c",
    "s1": "#2f8a88",
    "s2": "#a89018",
    "s3": "#c0201a",
    "s4": "#8a48cf",
    "s5": "#3b9de6",
    "s6": "#6c1345",
    "s7": "#33684a",
    "ramp-a": "#cf9214",
    "ramp-b": "#2f7f8f",
    "ramp-c": "#20207a",
}
DARK = {
    "paper-bg": "#16181c",
    "raised": "#1d2025",
    "ink": "#e6e4df",
    "soft": "#a3a8b1",
    "rule": "#33373e",
    "grid": "#2a2e34",
    "focus": "#7fb2ff",
    "code": "#24282e",
    "mean": "#93adf5",
    "median": "#d9694a",
    "paper": "#9da2aa",
    "miss": "#f2ae14",
    "s0": "#93adf5",
    "s1": "#4fe0b4",
    "s2": "#f2ae14",
    "s3": "#d9694a",
    "s4": "#7a7cf5",
    "s5": "#c9e6fb",
    "s6": "#c48ab0",
    "s7": "#f2de6a",
    "ramp-a": "#5068c4",
    "ramp-b": "#5cb8b0",
    "ramp-c": "#ffe9a0",
}
THEMES: dict[Theme, dict[str, str]] = {"light": LIGHT, "dark": DARK}

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
    light, dark = (" ".join(f"--{name}: {colour};" for name, colour in theme.items()) for theme in (LIGHT, DARK))
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
    return _written(_times(_LINEAR, _cubes(tuple(a + part * (b - a) for a, b in zip(first, second, strict=True)))))


def linear(colour: str) -> Lab:
    """Convert "#rrggbb" to linear light."""
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
    return red, green, blue


def to_lab(light: Lab) -> Lab:
    """Convert to lightness and opponent colours, whose distances match perception: 1 from black to white."""
    roots = [max(cone, 0.0) ** (1 / 3) for cone in _times(_CONES, light)]
    return _times(_LAB, (roots[0], roots[1], roots[2]))


def _cubes(lab: tuple[float, ...]) -> Lab:
    first, second, third = (root**3 for root in _times(_ROOTS, (lab[0], lab[1], lab[2])))
    return first, second, third


def _times(matrix: tuple[Lab, Lab, Lab], of: Lab) -> Lab:
    first, second, third = (sum(a * b for a, b in zip(row, of, strict=True)) for row in matrix)
    return first, second, third


def _written(light: Lab) -> str:
    parts = (12.92 * v if v <= 0.0031308 else 1.055 * v ** (1 / 2.4) - 0.055 for v in light)
    return "#" + "".join(f"{round(255 * min(max(v, 0.0), 1.0)):02x}" for v in parts)
