"""What a user may ask of figures; without torch, so that a command's help need not wait for it."""

import re
from dataclasses import dataclass
from typing import Literal

from strongticket.checks import Init
from strongticket.models.gpt2_sizes import gpt2_config
from strongticket.settings import setting

ON_TEXT = "Figures on text, from fig7 on"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a user may ask of any figure; None and nothing leave the figure's own default."""

    quick: bool = setting(False, "Fewer sources, widths and inputs: seconds, and rougher. From fig7 on: minutes.")
    sources: int | None = setting(
        None, "Random sources at each width.", least=1, shown="100; theorem3: 300, scans: 30; fewer with --quick"
    )
    targets: int = setting(1, "Targets, each with sources of its own.", least=1)
    seed: int = setting(0, "Seed of data, targets and sources.", least=0, most=2**60)
    init: Init = setting("theory", "Source weights: section 3.1, as printed in 4.1, or appendix B.1 of the paper.")
    target: Literal["trained", "untrained"] | None = setting(
        None, "What sources are pruned into.", shown="trained; from fig6 on: untrained"
    )
    normalize: bool | None = setting(None, "Targets of spectral norm at most 1.", shown="from fig6 on")
    schedule: Literal["short", "paper"] = setting(
        "short", "Minutes a run on one GPU, or the paper's 6e9 tokens.", panel=ON_TEXT
    )
    models: tuple[str, ...] = setting(
        (),
        "GPT-2 sizes, separated by commas.",
        panel=ON_TEXT,
        shown="mini and small, or what the figure needs; quick: nano",
    )
    seeds: int | None = setting(
        None,
        "Runs of each setting; beyond the first, larger models and ablation have fewer settings.",
        panel=ON_TEXT,
        least=1,
        shown="3",
    )
    only: str = setting("", "Begin only runs whose name has this in it.", panel=ON_TEXT, metavar="REGEX", shown="")

    def __post_init__(self) -> None:
        for size in self.models:
            gpt2_config(size)
        try:
            re.compile(self.only)
        except re.error as error:
            raise ValueError(f"--only {self.only!r} is no regular expression: {error}.") from None
