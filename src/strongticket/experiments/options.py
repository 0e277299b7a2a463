"""The options of figures; without torch, so that a command's help appears at once."""

import re
from dataclasses import dataclass, fields
from typing import Literal

from strongticket.checks import Init
from strongticket.models.gpt2_sizes import gpt2_config
from strongticket.settings import setting

VARIANT = "A variant of your own, fig4 to scans"
ON_TEXT = "Figures on text, from fig7 on"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of every figure; None and empty values leave the figure's default."""

    quick: bool = setting(
        False, "Fewer sources, widths and inputs: a rough figure in a minute or less; from fig7 on, in minutes."
    )
    sources: int | None = setting(
        None, "Random sources at each width.", least=1, shown="100; theorem3: 300, scans: 30; fewer with --quick"
    )
    targets: int = setting(1, "Targets, each with its own sources.", least=1)
    seed: int = setting(0, "Seed of data, targets and sources.", least=0, most=2**60)
    init: Init = setting(
        "theory", "Distribution of the random weights: section 3.1, as printed in 4.1, or appendix B.1 of the paper."
    )
    target: Literal["trained", "untrained"] | None = setting(
        None, "What the random networks are pruned into.", shown="trained; from fig6 on: untrained"
    )
    normalize: bool | None = setting(None, "Scale targets to spectral norm at most 1.", shown="from fig6 on")
    widths: tuple[int, ...] = setting((), "Hidden widths, such as 8,16,32.", panel=VARIANT, shown="")
    heads: int | None = setting(None, "Heads of the target.", panel=VARIANT, least=1, shown="1; theorem3: 2")
    d_model: int | None = setting(None, "Input dimension (theorem3).", panel=VARIANT, least=1, shown="4")
    blocks: int | None = setting(None, "Blocks of the target (fig6).", panel=VARIANT, least=1, shown="4")
    lengths: tuple[int, ...] = setting((), "Input lengths (fig5), such as 4,64,1024.", panel=VARIANT, shown="")
    items: int | None = setting(None, "Hidden units per input (scans).", panel=VARIANT, least=1, shown="20")
    tol: float | None = setting(None, "Error that counts as a failure (theorem3).", panel=VARIANT, shown="0.01")
    input_norm: float | None = setting(
        None, "Largest norm of an input (theorem3).", panel=VARIANT, shown="2, or the square root of d-model"
    )
    inputs: int | None = setting(
        None, "Test inputs each source is measured on.", panel=VARIANT, least=1, shown="100 to 10,000"
    )
    schedule: Literal["short", "paper"] = setting(
        "short", "short: minutes per run on one GPU; paper: its 6e9 tokens.", panel=ON_TEXT
    )
    models: tuple[str, ...] = setting(
        (),
        "GPT-2 sizes, separated by commas.",
        panel=ON_TEXT,
        shown="mini and small, or what the figure needs; nano with --quick",
    )
    seeds: int | None = setting(
        None,
        "Seeds of each setting; beyond the first seed, larger models and ablation have fewer settings.",
        panel=ON_TEXT,
        least=1,
        shown="3",
    )
    only: str = setting("", "Start only runs whose name matches.", panel=ON_TEXT, metavar="REGEX", shown="")

    def __post_init__(self) -> None:
        for name in ("widths", "lengths"):
            if min(getattr(self, name), default=1) < 1:
                raise ValueError(f"--{name} must be positive whole numbers; got {min(getattr(self, name))}.")
        for size in self.models:
            gpt2_config(size)
        try:
            re.compile(self.only)
        except re.error as error:
            raise ValueError(f"--only {self.only!r} is not a regular expression: {error}.") from None

    def variant(self) -> dict[str, str]:
        """Return the options that differ from a figure's defaults, by name.

        Example:
            >>> Options(widths=(8, 16), heads=4).variant()
            {'widths': '8-16', 'heads': '4'}
        """
        asked = {}
        for own in fields(self):
            value = getattr(self, own.name)
            if own.metadata["option"].get("rich_help_panel") != ON_TEXT and value != own.default:
                words = "-".join(map(str, value)) if isinstance(value, tuple) else str(value)
                asked[own.name.replace("_", "-")] = "" if value is True else words
        return asked
