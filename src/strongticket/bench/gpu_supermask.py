"""Check the CUDA supermask on a GPU and time a mask refresh of GPT-2.

    python -m strongticket.bench.gpu_supermask [--sizes mini,small] [--out FOLDER]

All masks of a model, each tensor ranked by itself and all together, beside a torch.sort or a torch.kthvalue for each
tensor (which leave the ties open). Masks that differ from the reference end the run with exit status 1. Rows go to
FOLDER/gpu_supermask.jsonl. Whole steps: `strongticket bench search`.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import parametrize

from strongticket.bench.measure import append_row, percentiles, time_alternating, time_runs
from strongticket.environment import environment
from strongticket.models.gpt2 import GPT2, gpt2_config, initial_scales
from strongticket.ops.supermask import Refresh, Supermask, dropped_count, reference

DENSITY = 0.3


def masked_gpt2(size: str) -> tuple[GPT2, list[Supermask]]:
    model = GPT2(gpt2_config(size, output_gain=4.0), device="cuda").requires_grad_(False)
    supermasks, generator = [], torch.Generator("cuda").manual_seed(0)
    for name in initial_scales(model.config):
        layer: Any = model.get_submodule(name.removesuffix(".weight"))
        scores = torch.rand(layer.weight.shape, generator=generator, device="cuda") - 0.5
        supermasks.append(Supermask(scores, DENSITY))
        parametrize.register_parametrization(layer, "weight", supermasks[-1])
    return model, supermasks


def wrong_masks(supermasks: list[Supermask]) -> int:
    return sum(not torch.equal(m.mask, reference.top_mask(m.scores, DENSITY)) for m in supermasks)


def measure_refresh(size: str, repeats: int) -> dict[str, Any]:
    supermasks = masked_gpt2(size)[1]
    scores = [m.scores.detach() for m in supermasks]
    line: dict[str, Any] = {"what": "refresh", "size": size, "scores": sum(s.numel() for s in scores)}
    refresh, together = Refresh(supermasks), Refresh(supermasks, "global")
    together()
    expected = reference.top_masks(scores, DENSITY)
    wrong = sum(not torch.equal(m.mask, e) for m, e in zip(supermasks, expected, strict=True))
    del expected
    refresh()
    if wrong := wrong + wrong_masks(supermasks):
        return line | {"wrong": wrong}

    def by_sort() -> list[Tensor]:
        return [s.abs().flatten().sort().values for s in scores]

    def by_kthvalue() -> list[Tensor]:
        return [s.abs().flatten().kthvalue(dropped_count(s.numel(), DENSITY)).values for s in scores]

    runs: dict[str, Callable[[], object]] = {"tensor": refresh, "global": together, "sort": by_sort}
    seconds = time_alternating(runs, warmup=1, repeats=repeats, synchronize=torch.cuda.synchronize)
    # Patience ends earlier with this one.
    seconds |= {"kthvalue": time_runs(by_kthvalue, repeats=2, synchronize=torch.cuda.synchronize)}
    for name, values in seconds.items():
        line |= {f"{name}_{key}": value for key, value in percentiles(values).items()}
    return line


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="mini,small")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("results/bench"))
    arguments = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for size in arguments.sizes.split(","):
        line = measure_refresh(size, arguments.repeats)
        append_row(arguments.out / "gpu_supermask.jsonl", op="supermask", **line, **environment("cuda"))
        if wrong := line.get("wrong"):
            print(f"{size}: {wrong} checks failed")
            return 1
        medians = {key.removesuffix("_median"): value for key, value in line.items() if key.endswith("_median")}
        print(f"{size}: " + ", ".join(f"{name} {1e3 * value:.2f} ms" for name, value in medians.items()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
