"""Export tickets as plain dense weights, for programs that do not know tickets."""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from strongticket.files import atomic_write
from strongticket.tickets.container import DTYPE_NAMES, Entry, header_bytes, header_of
from strongticket.tickets.content import Progress
from strongticket.tickets.ticket import Ticket

WEIGHTS, DESCRIPTION = "weights.safetensors", "tensors.json"


def export_ticket(ticket: Ticket, folder: Path, progress: Progress | None = None) -> None:
    """Write masked weights and dense tensors as one safetensors file, and a JSON file that lists them.

    Only one tensor at a time is in memory. Each file is written completely or not at all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    masked = ticket.materialize()
    entries = [
        *(Entry(name, "F32", tensor.shape) for name, tensor in ticket.tensors.items()),
        *(Entry(n, DTYPE_NAMES[d.value.dtype], tuple(d.value.shape)) for n, d in ticket.unscaling.items()),
    ]
    with atomic_write(folder / WEIGHTS) as file:
        file.write(header_bytes(header_of(entries, {"format": "pt", "ticket": ticket.identity})))
        for name, tensor in ticket.tensors.items():
            file.write(_bytes_of(masked[name]))
            if progress:
                progress(tensor.numel)
        for dense in ticket.unscaling.values():
            file.write(dense.to_bytes())
    with atomic_write(folder / DESCRIPTION) as file:
        file.write((json.dumps(describe(ticket), indent=2, ensure_ascii=False) + "\n").encode())


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write named float tensors as one safetensors file."""
    with atomic_write(path) as file:
        entries = [Entry(name, DTYPE_NAMES[tensor.dtype], tuple(tensor.shape)) for name, tensor in tensors.items()]
        file.write(header_bytes(header_of(entries, {"format": "pt"})))
        for tensor in tensors.values():
            file.write(_bytes_of(tensor.detach().cpu().contiguous()))


def describe(ticket: Ticket) -> dict[str, object]:
    """Describe an export: every tensor's origin, shape, dtype and density."""
    return {
        "architecture": ticket.architecture,
        "identity": ticket.identity,
        "tensors": [
            {"name": t.name, "origin": "random, masked", "shape": list(t.shape), "dtype": "F32", "density": t.density}
            for t in ticket.tensors.values()
        ]
        + [
            {
                "name": d.name,
                "origin": "trained" if d.trained else "exact",
                "shape": list(d.value.shape),
                "dtype": DTYPE_NAMES[d.value.dtype],
                "density": 1.0,
            }
            for d in ticket.unscaling.values()
        ],
        "weights": WEIGHTS,
    }


def _bytes_of(tensor: Tensor) -> memoryview:
    return tensor.reshape(-1).view(torch.uint8).numpy().data
