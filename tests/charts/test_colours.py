"""Colours that are told apart by every eye, light and dark: simulated as Machado, Oliveira and Fernandes do (2009)."""

from itertools import combinations, pairwise

import pytest

from strongticket.charts.colours import THEMES, Lab, Theme, linear, ramp, style_sheet, to_lab
from strongticket.charts.parts import SERIES

# Linear red, green and blue as they are seen without one kind of cones.
EYES: dict[str, tuple[Lab, Lab, Lab]] = {
    "all cones": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
JUST_SEEN = 0.02  # Oklab: about what an eye tells apart side by side
CLEARLY = 4 * JUST_SEEN


def seen(colour: str, eye: str) -> Lab:
    light = linear(colour)
    shifted = [min(1.0, max(0.0, sum(a * b for a, b in zip(row, light, strict=True)))) for row in EYES[eye]]
    return to_lab(shifted)


def distance(first: str, second: str, eye: str) -> float:
    return sum((a - b) ** 2 for a, b in zip(seen(first, eye), seen(second, eye), strict=True)) ** 0.5


def contrast(first: str, second: str) -> float:
    low, high = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05 for r, g, b in map(linear, (first, second)))
    return high / low


@pytest.mark.parametrize("eye", EYES)
@pytest.mark.parametrize("theme", THEMES)
def test_kinds_of_series_are_told_apart(theme: Theme, eye: str) -> None:
    colours = [THEMES[theme][role] for role in SERIES]
    assert min(distance(a, b, eye) for a, b in combinations(colours, 2)) > CLEARLY


@pytest.mark.parametrize("eye", EYES)
@pytest.mark.parametrize("theme", THEMES)
def test_what_figure_4_draws_is_told_apart(theme: Theme, eye: str) -> None:
    """Not the lines of the paper and of certificates, which have dashes of their own."""
    colours = [THEMES[theme][role] for role in ("mean", "median", "s1", "miss")]
    assert min(distance(a, b, eye) for a, b in combinations(colours, 2)) > CLEARLY


@pytest.mark.parametrize("steps", [4, 5, 8])
@pytest.mark.parametrize("eye", EYES)
@pytest.mark.parametrize("theme", THEMES)
def test_a_ramp_goes_one_way_in_steps_that_are_seen(theme: Theme, eye: str, steps: int) -> None:
    colours = [ramp(place / (steps - 1), theme) for place in range(steps)]
    assert min(distance(a, b, eye) for a, b in pairwise(colours)) > (CLEARLY if steps < 8 else 2 * JUST_SEEN)
    lightness = [seen(colour, eye)[0] for colour in colours]
    # From light to dark on white, and the other way round: the last always stands out most.
    assert lightness == sorted(lightness, reverse=theme == "light")


@pytest.mark.parametrize("theme", THEMES)
def test_lines_stand_out_from_what_is_behind_them(theme: Theme) -> None:
    colours = THEMES[theme]
    lines = [*(colours[role] for role in (*SERIES, "mean", "median", "paper", "miss")), ramp(0, theme), ramp(1, theme)]
    assert min(contrast(line, colours["raised"]) for line in lines) > 2.6
    assert min(contrast(colours[text], colours["raised"]) for text in ("ink", "soft")) > 4.5


def test_the_page_and_the_pictures_have_the_same_colours() -> None:
    sheet = style_sheet()
    for theme in THEMES.values():
        for role, colour in theme.items():
            assert f"--{role}: {colour};" in sheet
