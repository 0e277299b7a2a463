"""Check the CUDA supermask on a GPU and time a mask refresh of GPT-2.

    python -m strongticket.bench.gpu_supermask [--sizes mini,small] [--out FILE]

All masks of a model, each tensor ranked by itself and all together, beside a torch.sort or a torch.kthvalue per tensor
(which do not resolve ties). If masks differ from the reference, the exit status is 1. For whole steps, use
`strongticket bench search`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import parametrize

from strongticket.bench.measure import WrongAnswerError, percentiles, time_alternating, time_runs
from strongticket.bench.script import Row, run_script
from strongticket.models.gpt2 import GPT2, gpt2_config, initial_scales
from strongticket.ops.supermask import Refresh, Supermask, dropped_count, reference

DENSITY = 0.3


def masked_gpt2(size: str) -> list[Supermask]:
    model = GPT2(gpt2_config(size, output_gain=4.0), device="cuda").requires_grad_(False)
    supermasks, generator = [], torch.Generator("cuda").manual_seed(0)
    for name in initial_scales(model.config):
        layer: Any = model.get_submodule(name.removesuffix(".weight"))
        scores = torch.rand(layer.weight.shape, generator=generator, device="cuda") - 0.5
        supermasks.append(Supermask(scores, DENSITY))
        parametrize.register_parametrization(layer, "weight", supermasks[-1])
    return supermasks


def check(size: str, supermasks: list[Supermask], refresh: Refresh, expected: list[Tensor]) -> None:
    refresh()
    wrong = sum(not torch.equal(m.mask, e) for m, e in zip(supermasks, expected, strict=True))
    if wrong:
        raise WrongAnswerError(f"{size}: {wrong} of {len(supermasks)} masks differ from the reference")


def times(*, sizes: tuple[str, ...], repeats: int) -> Iterator[Row]:
    for size in sizes:
        supermasks = masked_gpt2(size)
        scores = [m.scores.detach() for m in supermasks]
        refresh, together = Refresh(supermasks), Refresh(supermasks, "global")
        check(size, supermasks, together, reference.top_masks(scores, DENSITY))
        check(size, supermasks, refresh, [reference.top_mask(s, DENSITY) for s in scores])

        def by_sort(scores: list[Tensor] = scores) -> list[Tensor]:
            return [s.abs().flatten().sort().values for s in scores]

        def by_kthvalue(scores: list[Tensor] = scores) -> list[Tensor]:
            return [s.abs().flatten().kthvalue(dropped_count(s.numel(), DENSITY)).values for s in scores]

        runs: dict[str, Callable[[], object]] = {"tensor": refresh, "global": together, "sort": by_sort}
        seconds = time_alternating(runs, warmup=1, repeats=repeats, device="cuda")
        # Fewer repeats: this one is slow.
        seconds |= {"kthvalue": time_runs(by_kthvalue, repeats=2, device="cuda")}
        for engine, values in seconds.items():
            # In seconds.
            yield {"size": size, "scores": sum(s.numel() for s in scores), "engine": engine, **percentiles(values)}


if __name__ == "__main__":
    out = Path("results/bench/gpu_supermask.jsonl")
    run_script(__doc__, times, op="supermask", out=out, on="cuda", sizes=("mini", "small"), repeats=7)
