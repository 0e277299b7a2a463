"""Tokens per second of GPT-2 from bits, beside torch's ways to run the same network.

Every engine runs in its own process, so that its memory is its own. They take turns, so that a slow moment of the
machine affects all alike.
"""

import ctypes
import gc
import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from statistics import median
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from strongticket.bench.measure import WrongAnswerError, clock_for, percentiles, ratio, time_runs
from strongticket.bench.settings import OWN_ENGINES, DecodeSettings
from strongticket.models.gpt2 import GPT2, gpt2_config, initial_scales
from strongticket.models.gpt2_decoder import Decoder
from strongticket.models.gpt2_layers import LayeredGPT2, plain_layers
from strongticket.models.signed import weight_bytes
from strongticket.report.records import Decoding
from strongticket.tickets.mask import PackedMask
from strongticket.tickets.tensors import RandomTensor
from strongticket.tickets.ticket import Ticket

CHECKED = 12  # tokens whose logits are compared with float64's
LARGEST_ERROR = 1e-4  # of logits, in float32
FIRST_TURNS = 3  # a long prompt takes longer than many tokens
WARM = 100  # tokens of a first prompt: long enough that bits, too, are unpacked for torch's products
READ = 1 << 28  # bytes read to measure the bandwidth
GPU_READ = 1 << 32


def run(settings: DecodeSettings, progress: Callable[[str], object]) -> Iterator[list[Decoding]]:
    """Measure all engines for each model and number of threads, after checking what they compute."""
    for size in settings.models:
        progress(f"{size}: logits in float64")
        expected = _reference(size)
        for threads in settings.chosen_threads:
            yield _measure(settings, size, threads, expected, progress)


def count_steps(settings: DecodeSettings) -> int:
    """Count the calls of `progress`."""
    each = len(settings.engines) + settings.repeats + 1
    return len(settings.models) * (1 + len(settings.chosen_threads) * each)


def random_ticket(size: str) -> Ticket:
    """Make a GPT-2 of signed constants with half of the weights kept, as at the start of a search."""
    config, generator = gpt2_config(size), np.random.default_rng(0)
    shapes = {name: tuple(parameter.shape) for name, parameter in GPT2(config, device="meta").named_parameters()}
    tensors = [
        RandomTensor(
            name=name,
            mask=PackedMask(shapes[name], generator.integers(256, size=np.prod(shapes[name]) // 8, dtype=np.uint8)),
            distribution="packed-sign",
            scale=scale,
        )
        for name, (_, scale) in initial_scales(config).items()
    ]
    return Ticket(seed=0, tensors=tensors, architecture={"family": "gpt2", "config": asdict(config)})


def tokens_of(count: int, vocabulary: int) -> list[int]:
    """Draw tokens, always the same."""
    drawn: list[int] = np.random.default_rng(1).integers(vocabulary, size=count).tolist()
    return drawn


def _reference(size: str) -> Tensor:
    """Return the logits in float64, (V,)."""
    model = random_ticket(size).build(dtype=torch.float64).eval()
    assert isinstance(model, GPT2)
    return Decoder(model, room=CHECKED).feed(tokens_of(CHECKED, model.config.vocabulary))


def _measure(
    settings: DecodeSettings, size: str, threads: int, expected: Tensor, progress: Callable[[str], object]
) -> list[Decoding]:
    where = f"{size}, {settings.device}, {threads} thread{'s' * (threads != 1)}"
    with ExitStack() as stack:
        begun = {name: stack.enter_context(_Engine(name, size, settings, threads)) for name in settings.engines}
        engines = {}
        for name, engine in begun.items():
            progress(f"{where}: preparing {name}")
            if engine.ready.result():
                engines[name] = engine
        errors = {name: _error(engine.ask("logits"), expected) for name, engine in engines.items()}
        check(errors, where)
        progress(f"{where}: prompts")
        firsts: dict[str, list[float]] = {name: [] for name in engines}
        turns: dict[str, list[float]] = {name: [] for name in engines}
        for _ in range(min(FIRST_TURNS, settings.repeats)):
            for name, engine in engines.items():
                firsts[name].append(engine.ask("first"))
        for turn in range(settings.repeats):
            progress(f"{where}: turn {turn + 1}")
            for name, engine in engines.items():
                turns[name].append(engine.ask("tokens"))
        bandwidth = max(engine.ask("bandwidth") for engine in engines.values())
    return [
        Decoding(
            model=size,
            engine=name,
            device=settings.device,
            threads=threads,
            clock=clock_for(threads, settings.device)[0],
            weights=engine.ready.result()["weights"],
            weight_bytes=engine.ready.result()["weight_bytes"],
            memory_bytes=engine.ready.result()["memory_bytes"],
            first_seconds=median(firsts[name]),
            prompt=settings.prompt,
            context=settings.context,
            **percentiles([1 / seconds for seconds in turns[name]]),
            error=errors[name],
            bandwidth=bandwidth,
            limit_share=engine.ready.result()["read_bytes"] / bandwidth / median(turns[name]),
            times_float32=_times(turns, name),
            first_times_float32=_times(firsts, name),
        )
        for name, engine in engines.items()
    ]


def check(errors: dict[str, float], where: str) -> None:
    """Refuse to time an engine that computes another network; the rounding of other precisions is only reported."""
    for name, error in errors.items():
        if name in (*OWN_ENGINES, "float32") and not error <= LARGEST_ERROR:
            raise WrongAnswerError(f"{where}: logits of {name} differ by {error:.1e} of the largest.")


def _error(logits: Any, expected: Tensor) -> float:
    difference = torch.from_numpy(logits).double() - expected
    return float(difference.abs().max() / expected.abs().max())


def _times(seconds: dict[str, list[float]], name: str) -> float | None:
    return ratio(seconds["float32"], seconds[name]) if "float32" in seconds else None


class _Engine(ProcessPoolExecutor):
    """A process that runs one network in one way, and answers requests."""

    def __init__(self, name: str, size: str, settings: DecodeSettings, threads: int) -> None:
        super().__init__(1, multiprocessing.get_context("spawn"))
        before = os.environ.get("OMP_NUM_THREADS")
        os.environ["OMP_NUM_THREADS"] = str(threads)
        self.ready = self.submit(_prepare, name, size, settings, threads)
        os.environ.pop("OMP_NUM_THREADS") if before is None else os.environ.update(OMP_NUM_THREADS=before)

    def ask(self, what: str) -> Any:
        """Wait for an answer."""
        return self.submit(_answer, what).result()


_ANSWERS: dict[str, Callable[[], object]] = {}  # of an engine, in its process


def _answer(what: str) -> object:
    return _ANSWERS[what]()


def _prepare(name: str, size: str, settings: DecodeSettings, threads: int) -> dict[str, int]:
    """Build the network; return its sizes, or nothing if torch cannot do it here."""
    import numba

    warnings.simplefilter("ignore")  # torch's, about moving its quantisation elsewhere
    numba.set_num_threads(min(threads, numba.get_num_threads()))
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    device = settings.device
    try:
        small = Decoder(_built(name, "nano", device))
        small.feed([1] * WARM), small.feed([3])  # loads all libraries
        del small
        begin = _memory(device)
        model = _built(name, size, device)
        room = settings.context + settings.tokens * (settings.repeats + 1)
        decoder = Decoder(model, room=room, static=name == "compiled" or None)
        tokens = tokens_of(max(settings.prompt, settings.context, CHECKED), model.config.vocabulary)
        decoder.feed(tokens[: settings.context])
        if name == "compiled":
            decoder.step = torch.compile(decoder.step, dynamic=False)  # type: ignore[method-assign]
        for token in tokens[: settings.tokens]:  # compiled, cached and, on a GPU, captured
            decoder.feed([token])
        Decoder(model, room=settings.prompt).feed(tokens[: settings.prompt])
    except Exception as error:  # torch's compiler and quantiser can raise anything
        if name in OWN_ENGINES:
            raise
        print(f"{name} cannot be run here: {error!s:.200}", file=sys.stderr)
        return {}
    # A token reads one row of the embeddings, unless they are the head.
    read = nn.ModuleList([model.blocks, model.final_norm, cast(nn.Module, model.head)])
    timed = partial(time_runs, warmup=0, device=device, clock=clock_for(threads, device)[1])

    def bandwidth() -> float:
        numbers = torch.ones((READ if device == "cpu" else GPU_READ) // 4, device=device)
        return numbers.nbytes / min(timed(numbers.sum, repeats=5))

    def first() -> None:
        Decoder(model, room=settings.prompt).feed(tokens[: settings.prompt]).argmax()

    def next_tokens() -> None:
        for token in tokens[: settings.tokens]:
            decoder.feed([token])

    _ANSWERS.update(
        logits=lambda: Decoder(model, room=CHECKED).feed(tokens[:CHECKED]).float().cpu().numpy(),
        first=lambda: timed(first, repeats=1)[0],
        tokens=lambda: timed(next_tokens, repeats=1)[0] / settings.tokens,
        bandwidth=bandwidth,
    )
    return {
        "weights": random_ticket(size).numel,
        "weight_bytes": _weight_bytes(model),
        "read_bytes": _weight_bytes(read),
        "memory_bytes": max(0, _memory(device) - begin),
    }


def _built(name: str, size: str, device: str) -> GPT2:
    """Build the network as an engine runs it."""
    ticket = random_ticket(size)
    if name in OWN_ENGINES:
        return cast(GPT2, ticket.build(run="bits", resident="mask" if name == "mask" else "planes", device=device))
    model = LayeredGPT2(cast(GPT2, ticket.build(device=device)))
    if name == "bfloat16" or (name == "compiled" and device != "cpu"):
        return model.to(torch.bfloat16)
    if name == "int8":
        if device != "cpu":
            raise ValueError("torch's dynamic quantisation is for CPUs")
        plain_layers(model)
        torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, inplace=True)  # type: ignore[no-untyped-call]
    return model


def _weight_bytes(model: nn.Module) -> int:
    """Count the memory of all weights, including those torch has packed into its own modules."""
    packed: list[Any] = [module for module in model.modules() if callable(getattr(module, "weight", None))]
    hidden: int = sum(module.weight().nbytes for module in packed)
    return weight_bytes(model) + hidden


def _memory(device: str) -> int:
    """Return the bytes this process now holds on its device; freed memory does not count."""
    gc.collect()
    if device != "cpu":
        return torch.cuda.memory_allocated()
    if sys.platform != "linux":
        return 0
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
