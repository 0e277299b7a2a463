"""Tickets of pretrained models on a GPU: seconds, sums per second, and identities to compare with the CPU's.

    python -m strongticket.bench.gpu_pretrained --model FOLDER [--device cuda] [--expect IDENTITY] [--out FILE]
    python -m strongticket.bench.gpu_pretrained --model llama --runs attention+mlp:16,attention+mlp:16
    python -m strongticket.bench.gpu_pretrained --model llama-1b --layers 1 --device cpu --runs attention+mlp:16

FOLDER is all-MiniLM-L6-v2: config.json, and layers.safetensors with only the layers' tensors; embeddings are not used.
"llama" is a Llama of 100 million parameters, made from its configuration, and "llama-1b" has the sizes of Llama 3.2 1B.
First, one layer is constructed on the GPU and on the CPU, and the tickets must be equal. On the CPU, the peak is the
process's. Every row is one construction: seconds until all parts are solved, until the ticket with its weights' digest
is ready, and for writing the file. The first row of each kind is a warm-up that compiles. To see where the time goes,
use `python -m cProfile -s tottime -m` instead of `python -m`.
"""

import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

from strongticket.bench.measure import WrongAnswerError
from strongticket.bench.script import Row, run_script
from strongticket.environment import peak_memory
from strongticket.ops.rng import random_weights
from strongticket.pretrained import construct_pretrained

LLAMAS: dict[str, dict[str, Any]] = {
    "llama": {
        "hidden_size": 768,
        "intermediate_size": 2048,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
        "vocab_size": 32_000,
        "tie_word_embeddings": True,
    },
    "llama-1b": {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128_256,
        "tie_word_embeddings": True,
    },
}


def load(folder: Path) -> nn.Module:
    model: Any = BertModel(BertConfig.from_pretrained(folder))  # type: ignore[no-untyped-call]
    _, unexpected = model.load_state_dict(load_file(folder / "layers.safetensors"), strict=False)
    assert not unexpected
    evaluated: nn.Module = model.eval()
    return evaluated


def llama(kind: str = "llama", **sizes: Any) -> nn.Module:
    """Make a Llama with the same weights on every machine, as large as trained ones."""
    maker: Any = LlamaForCausalLM  # untyped
    model: nn.Module = maker(LlamaConfig(**{**LLAMAS[kind], **sizes})).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2:  # norms stay at 1
                parameter.copy_(random_weights(0, name, tuple(parameter.shape), "normal", parameter.shape[1] ** -0.5))
    return model


def check_on_cpu(model: nn.Module, device: str, items: int) -> None:
    """Construct a small model on both devices; the tickets must be equal."""
    here, there = (construct_pretrained(model, items=items, what="attention+mlp", device=d) for d in (device, "cpu"))
    if here.identity != there.identity:
        raise WrongAnswerError(f"one layer is {here.identity} on {device}, but {there.identity} on the CPU")


def construct(model: nn.Module, device: str, items: int, what: Any, file: Path) -> Row:
    """Construct once and time it."""
    done, solved_at = 0, 0.0

    def progress(sums: int) -> None:
        nonlocal done, solved_at
        done, solved_at = done + sums, time.perf_counter()

    start = time.perf_counter()
    checkpoint = file.with_suffix(".partial")
    ticket = construct_pretrained(
        model, items=items, what=what, device=device, progress=progress, checkpoint=checkpoint
    )
    ready = time.perf_counter()
    ticket.save(file)
    saved = time.perf_counter()
    certificate = ticket.certificate
    assert certificate is not None
    return {
        "what": what,
        "items": items,
        "sums": done,
        "solved_s": solved_at - start,
        "ready_s": ready - start,
        "save_s": saved - ready,
        "sums_per_s": done / (solved_at - start),
        "bytes": file.stat().st_size,
        "identity": ticket.identity,
        "target_sha256": certificate.target_sha256,
        "unreachable": certificate.details["unreachable"]["count"],
        "worst_reached": max(part["worst_reached"] for part in certificate.details["parts"]),
        # The error of each part.
        "certified": [part["error"] for part in certificate.details["parts"]],
        "peak_gib": peak_memory(device) / 2**30,
        # Of this machine: digests are the other half of the work.
        "sha256_gb_per_s": digest_rate(),
    }


def digest_rate() -> float:
    data = os.urandom(1 << 28)
    start = time.perf_counter()
    hashlib.sha256(data).digest()
    return len(data) / 1e9 / (time.perf_counter() - start)


def constructions(*, model: str, layers: int, device: str, expect: str, runs: tuple[str, ...]) -> Iterator[Row]:
    """Construct each of `runs`, such as attention:20; `expect` is the identity of that one, 0 layers are all."""
    if model in LLAMAS and device != "cpu":
        check_on_cpu(llama(model, num_hidden_layers=1), device, int(runs[0].partition(":")[2]))
    fewer = {"num_hidden_layers": layers} if layers else {}
    loaded = llama(model, **fewer) if model in LLAMAS else load(Path(model))
    for run in runs:
        what, _, items = run.partition(":")
        with tempfile.TemporaryDirectory() as folder:
            made = construct(loaded, device, int(items), what, Path(folder) / "x.ticket")
        if run == "attention:20" and expect not in ("", made["identity"]):
            raise WrongAnswerError(f"{run}: {made['identity']} is not the CPU's ticket, {expect}")
        yield made


if __name__ == "__main__":
    kinds, out = ("attention:20",) * 3 + ("attention:24",), Path("gpu_pretrained.jsonl")
    where: dict[str, Any] = {"model": ".", "layers": 0, "device": "cuda"}
    run_script(__doc__, constructions, op="gpu_pretrained", out=out, **where, expect="", runs=kinds)
