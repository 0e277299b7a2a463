"""Check the CUDA supermask on a GPU, time a mask refresh and a whole search step of GPT-2 beside dense training.

    python benchmarks/gpu_supermask.py [--sizes mini,small] [--out FOLDER] [--profile]

Refresh: all masks of a model, beside a torch.sort or a torch.kthvalue for each tensor (which leave the ties open).
Step: four micro-batches of 32 x 1024 random tokens in bfloat16, compiled, AdamW and the refresh included; dense and
masked steps take turns in one process. Everything random is masked, embeddings too. All else is frozen in the masked
model and trained in the dense one, whose step therefore pays for the gradients of biases and norms: the ratio speaks of
the two ways to use a GPT-2, not of the masks alone. Peak memory is each model's own: what the other one keeps resident
is taken off. Masks that differ from the reference, or a loss that differs from the uncompiled one, end the run with
exit status 1. Rows go to FOLDER/gpu_supermask.jsonl.
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from strongticket.bench.measure import append_row, environment, percentiles, time_alternating, time_runs
from strongticket.models.gpt2 import GPT2, gpt2_config, initial_scales
from strongticket.ops.supermask import Refresh, Supermask, dropped_count, reference

DENSITY = 0.3
BATCH, MICRO_BATCHES = 32, 4
STEPS = 3  # a timing, so that waiting for the GPU at its end weighs little


def masked_gpt2(size: str) -> tuple[GPT2, list[Supermask]]:
    model = GPT2(gpt2_config(size, output_gain=4.0), device="cuda").requires_grad_(False)
    supermasks, generator = [], torch.Generator("cuda").manual_seed(0)
    for name in initial_scales(model.config):
        layer = model.get_submodule(name.removesuffix(".weight"))
        scores = torch.rand(layer.weight.shape, generator=generator, device="cuda") - 0.5
        supermasks.append(Supermask(scores, DENSITY))
        parametrize.register_parametrization(layer, "weight", supermasks[-1])
    return model, supermasks


def wrong_masks(supermasks: list[Supermask]) -> int:
    return sum(not torch.equal(m.mask, reference.top_mask(m.scores, DENSITY)) for m in supermasks)


# --- The refresh alone -----------------------------------------------------------------------------------------------


def measure_refresh(size: str, repeats: int) -> dict[str, object]:
    supermasks = masked_gpt2(size)[1]
    scores = [m.scores.detach() for m in supermasks]
    line: dict[str, object] = {"what": "refresh", "size": size, "scores": sum(s.numel() for s in scores)}
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

    runs = {"tensor": refresh, "global": together, "sort": by_sort}
    seconds = time_alternating(runs, warmup=1, repeats=repeats, synchronize=torch.cuda.synchronize)
    # Patience ends earlier with this one.
    seconds |= {"kthvalue": time_runs(by_kthvalue, repeats=2, synchronize=torch.cuda.synchronize)}
    for name, values in seconds.items():
        line |= {f"{name}_{key}": value for key, value in percentiles(values).items()}
    return line


# --- A training step -------------------------------------------------------------------------------------------------


class Trainer:
    """One model with its optimizer; `step` is what a training loop would do."""

    def __init__(self, model: nn.Module, refresh: Callable[[], None]) -> None:
        self.model, self.refresh = model, refresh
        self.compiled = torch.compile(model, dynamic=False, fullgraph=True)
        trained = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
        self.batches = torch.randint(50257, (MICRO_BATCHES, BATCH, 1025), device="cuda")
        self.step()
        states = [t for state in self.optimizer.state.values() for t in state.values()]
        kept = {t.data_ptr(): t.nbytes for t in (*model.parameters(), *model.buffers(), *states, self.batches)}
        self.resident = sum(kept.values())

    def loss(self, run: Callable[..., Tensor], batch: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return run(batch[:, :-1], batch[:, 1:])

    def step(self) -> None:
        for batch in self.batches:
            (self.loss(self.compiled, batch) / MICRO_BATCHES).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.refresh()

    def steps(self) -> None:
        for _ in range(STEPS):
            self.step()

    def differs_from_eager(self) -> bool:
        compiled = self.loss(self.compiled, self.batches[0]).detach()
        with torch.no_grad():
            return not torch.allclose(compiled, self.loss(self.model, self.batches[0]), rtol=0.01)

    def peak(self) -> int:
        others = torch.cuda.memory_allocated() - self.resident
        torch.cuda.reset_peak_memory_stats()
        self.step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - others


def measure_step(size: str, repeats: int, profile: Path | None) -> dict[str, object]:
    line: dict[str, object] = {"what": "step", "size": size}
    dense = Trainer(GPT2(gpt2_config(size, output_gain=4.0), device="cuda"), lambda: None)
    model, supermasks = masked_gpt2(size)
    masked = Trainer(model, Refresh(supermasks))
    if wrong := wrong_masks(supermasks) + dense.differs_from_eager() + masked.differs_from_eager():
        return line | {"wrong": wrong}
    trainers = {"dense": dense, "masked": masked}
    runs = {name: trainer.steps for name, trainer in trainers.items()}
    seconds = time_alternating(runs, warmup=1, repeats=repeats, synchronize=torch.cuda.synchronize)
    tokens = MICRO_BATCHES * BATCH * 1024
    for name, trainer in trainers.items():
        line |= {f"{name}_{key}": value / STEPS for key, value in percentiles(seconds[name]).items()}
        line |= {f"{name}_peak_bytes": trainer.peak()}
        line |= {f"{name}_tokens_per_second": STEPS * tokens / percentiles(seconds[name])["median"]}
        if profile:
            write_profile(profile / f"{size}-{name}.txt", trainer.step)
    ratios = [m / d for m, d in zip(seconds["masked"], seconds["dense"], strict=True)]
    line |= {f"ratio_{key}": value for key, value in percentiles(ratios).items()}
    return line | {"peak_ratio": masked.peak() / dense.peak()}


def write_profile(path: Path, run: Callable[[], None]) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as recorded:
        run()
        torch.cuda.synchronize()
    events = sorted(recorded.key_averages(), key=lambda event: -event.self_device_time_total)
    lines = [
        f"{event.self_device_time_total / 1e3:9.3f} ms {event.count:5d} x {event.key[:150]}" for event in events[:40]
    ]
    path.write_text("\n".join(lines) + "\n")


def milliseconds(line: dict[str, object]) -> str:
    medians = {key.removesuffix("_median"): value for key, value in line.items() if key.endswith("_median")}
    ratio = f"; ratio {medians.pop('ratio'):.4f}" if "ratio" in medians else ""
    return ", ".join(f"{name} {1e3 * value:.2f} ms" for name, value in medians.items()) + ratio


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="mini,small")
    parser.add_argument("--what", default="refresh,step")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("benchmarks"))
    parser.add_argument("--profile", action="store_true", help="write each step's kernels beside the rows")
    arguments = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    measures = {
        "refresh": measure_refresh,
        "step": partial(measure_step, profile=arguments.out if arguments.profile else None),
    }
    for what in arguments.what.split(","):
        for size in arguments.sizes.split(","):
            line = measures[what](size, arguments.repeats)
            append_row(arguments.out / "gpu_supermask.jsonl", op="supermask", **line, **environment("cuda"))
            if line.get("wrong"):
                print(f"{what} {size}: {line['wrong']} checks failed")
                return 1
            peaks = f"; peak {line['peak_ratio']:.3f} of dense" if "peak_ratio" in line else ""
            print(f"{what} {size}: {milliseconds(line)}{peaks}", flush=True)
            torch._dynamo.reset()
            torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
