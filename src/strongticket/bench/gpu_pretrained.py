"""all-MiniLM-L6-v2 into tickets on a GPU: seconds, sums a second, and the identities to hold against the CPU's.

    python -m strongticket.bench.gpu_pretrained --model FOLDER --out FOLDER [--device cuda] [--expect IDENTITY]

FOLDER has config.json and layers.safetensors with the tensors of the layers alone; embeddings play no part in it.
Every row is one construction: seconds until all parts are solved, until the ticket with the digest of its weights is
there, and for writing the file. The first row of each kind is a warm-up that compiles.
"""

import argparse
import cProfile
import hashlib
import io
import json
import os
import platform
import pstats
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn
from transformers import BertConfig, BertModel

from strongticket.pretrained import construct_pretrained
from strongticket.pretrained.families import What


def load(folder: Path) -> nn.Module:
    model: Any = BertModel(BertConfig.from_pretrained(folder))  # type: ignore[no-untyped-call]
    _, unexpected = model.load_state_dict(load_file(folder / "layers.safetensors"), strict=False)
    assert not unexpected
    evaluated: nn.Module = model.eval()
    return evaluated


def construct(model: nn.Module, device: str, items: int, what: What, file: Path) -> dict[str, Any]:
    """Construct once and time it."""
    done, solved_at = 0, 0.0

    def progress(sums: int) -> None:
        nonlocal done, solved_at
        done, solved_at = done + sums, time.perf_counter()

    partial = file.with_suffix(".partial")
    start = time.perf_counter()
    ticket = construct_pretrained(model, items=items, what=what, device=device, progress=progress, checkpoint=partial)
    ready = time.perf_counter()
    ticket.save(file)
    saved = time.perf_counter()
    for path in partial.iterdir():
        path.unlink()
    partial.rmdir()
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
        "certified": [part["error"] for part in certificate.details["parts"]],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--expect", default="", help="identity at 20 items, attention")
    parser.add_argument("--profile", action="store_true", help="profile one more run at 20 items")
    parser.add_argument("--runs", nargs="+", default=["attention:20", "attention:20", "attention:20", "attention:24"])
    arguments = parser.parse_args()
    model, file = load(arguments.model), arguments.out / "x.ticket"
    rows = []
    for run in arguments.runs:
        what, _, items = run.partition(":")
        row = construct(model, arguments.device, int(items), what, file)
        file.unlink()
        row["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30 if arguments.device == "cuda" else None
        rows.append(row)
        print({key: row[key] for key in row if key != "certified"}, flush=True)
        if run == "attention:20" and arguments.expect:
            assert row["identity"] == arguments.expect, "not the CPU's ticket"
    if arguments.profile:
        profile, text = cProfile.Profile(), io.StringIO()
        profile.runcall(construct, model, arguments.device, 20, "attention", file)
        file.unlink()
        pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(25)
        print(text.getvalue())
    data = os.urandom(1 << 28)
    start = time.perf_counter()
    hashlib.sha256(data).digest()
    about = {
        "gpu": torch.cuda.get_device_name() if arguments.device == "cuda" else None,
        "cpu": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "sha256_gb_per_s": 2**28 / 1e9 / (time.perf_counter() - start),
    }
    (arguments.out / "gpu_pretrained.json").write_text(json.dumps({"rows": rows, "machine": about}, indent=1))


if __name__ == "__main__":
    main()
