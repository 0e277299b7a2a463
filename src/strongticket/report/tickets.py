"""A ticket opened up: each tensor's density, its mask as a picture, and the weights it keeps among those drawn."""

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from strongticket.container import Json
from strongticket.mask import FullMask, PackedMask
from strongticket.report.parts import Inspector, Section, Table
from strongticket.rng import random_chunk
from strongticket.show import summarize
from strongticket.ticket import RandomTensor, Ticket

CELLS = 96  # of a picture, along each side
BINS = 41  # of a distribution; odd, so that one is centred at zero
MOST_BITS = 2**26  # of one mask; of a larger one every so many rows are read
SAMPLES, SAMPLE = 16, 2**14  # a distribution is of at most 16 stretches of this many weights

Bits = npt.NDArray[np.uint8]


@dataclass(slots=True)
class Budget:
    """How much a page has room and time for; what is drawn is taken off."""

    tickets: int = 12
    pictures: int = 200
    bits: int = 2**28


def ticket_section(path: Path, place: int, budget: Budget) -> Section:
    """Show one ticket.

    Args:
        path: of the file.
        place: its number on the page, which tells anchors apart.
        budget: reduced by what is drawn here.
    """
    ticket = Ticket.load(path)
    summary = summarize(ticket, path.stat().st_size)
    tensors = [_draw(ticket, tensor, budget) for tensor in ticket.tensors.values()]
    undrawn = sum("grid" not in tensor for tensor in tensors)
    caption = "Pick a tensor. Dark cells are kept weights, light ones dropped."
    if undrawn:
        caption += f" {undrawn} of {len(tensors)} tensors have no picture; where it would be, the reason is."
    inspector = Inspector(
        title="Masks and kept weights", caption=caption, tensors=tensors, tables=(_tensor_table(tensors),)
    )
    return Section(
        anchor=f"ticket-{place}",
        name=path.name,
        title=f"Inside a ticket: {path.name}",
        lead="The file holds a seed, which gives every random weight, and for each tensor which of them are kept. That "
        "is the whole network.",
        finding=f"{summary['kept']:,} of {summary['weights']:,} random weights kept, {summary['file_bytes']:,} bytes",
        blocks=(_facts(summary), inspector),
        origin={
            "Data": str(path),
            "Command": str(ticket.metadata.get("command", "not recorded")),
            "Seed": str(ticket.seed),
        },
    )


def _facts(summary: dict[str, Json]) -> Table:
    weights = summary["weights"]
    size = f"{summary['file_bytes']:,} bytes"
    facts = {
        "weights": f"{weights:,} random, {summary['kept']:,} kept",
        "density": f"{summary['density']:.4f}",
        "dense numbers": f"{summary['dense_numbers']:,} in {len(summary['dense'])} tensors",
        "strong": "yes: nothing in it was trained" if summary["strong"] else "no: some dense tensors were trained",
        "size": f"{size}, {8 * summary['file_bytes'] / weights:.3f} bits a weight" if weights else size,
        "architecture": f"{_settings(summary['architecture']):.400}" or "not given",
        "certificate": _certificate(summary["certificate"]),
        "identity": summary["identity"],
    }
    return Table(caption="What the file says", columns=(), rows=list(facts.items()), words=2)


def _settings(value: Json, path: str = "") -> str:
    """Write nested settings in one line, inner ones as outer.inner."""
    if not isinstance(value, dict):
        return f"{path} {value}"
    return ", ".join(_settings(part, f"{path}.{key}" if path else str(key)) for key, part in value.items())


def _certificate(certificate: Json) -> str:
    if certificate is None:
        return "none"
    return (
        f"error at most {certificate['error']:.3e} for inputs of norm at most {certificate['input_norm']:g}, as stored"
    )


def _tensor_table(tensors: Sequence[dict[str, Json]]) -> Table:
    rows = [(t["name"], t["shape"], t["drawn"], t["kind"], f"{t['kept']:,}", f"{t['density']:.4f}") for t in tensors]
    columns = ("tensor", "shape", "weights", "mask", "kept", "density")
    return Table(caption="Tensors", columns=columns, rows=rows, words=4)


def _draw(ticket: Ticket, tensor: RandomTensor, budget: Budget) -> dict[str, Json]:
    described: dict[str, Json] = {
        "name": tensor.name,
        "shape": " × ".join(map(str, tensor.shape)) or "scalar",
        "drawn": f"{tensor.distribution}, scale {tensor.scale:.4g}",
        "kind": tensor.mask.kind,
        "kept": tensor.mask.count(),
        "density": tensor.density,
    }
    if reason := _why_not(tensor, budget):
        return described | {"note": reason}
    budget.pictures -= 1
    budget.bits -= min(tensor.numel, MOST_BITS)
    described["grid"], described["note"] = _picture(tensor, *_sides(tensor.shape))
    described["histogram"] = _distribution(ticket.seed, tensor)
    return described


def _why_not(tensor: RandomTensor, budget: Budget) -> str:
    """Say why a tensor cannot be drawn; nothing if it can."""
    _, columns = _sides(tensor.shape)
    rule = not isinstance(tensor.mask, PackedMask | FullMask)
    if not tensor.numel:
        return "the tensor is empty"
    if columns > MOST_BITS or (rule and tensor.numel > MOST_BITS):
        return f"a row of {columns:,} weights is too large to draw"
    if budget.pictures < 1 or budget.bits < min(tensor.numel, MOST_BITS):
        return "the page has room for no more"
    return ""


def _sides(shape: tuple[int, ...]) -> tuple[int, int]:
    """Lay a tensor flat: its last axis across, all others down."""
    return math.prod(shape[:-1]), shape[-1] if shape else 1


def _picture(tensor: RandomTensor, rows: int, columns: int) -> tuple[Json, str]:
    """Give the mask as at most CELLS x CELLS densities of one byte each, and what was done to it."""
    step = -(-rows * columns // MOST_BITS)  # 1 unless the mask is too large to read whole
    chosen = range(0, rows, step)
    lines = [bits_of(tensor, row * columns, (row + 1) * columns) for row in chosen] if step > 1 else None
    bits = np.stack(lines) if lines is not None else bits_of(tensor, 0, rows * columns).reshape(rows, columns)
    grid = downsample(bits, min(len(bits), CELLS), min(columns, CELLS))
    notes = []
    if len(tensor.shape) > 2:
        notes.append(f"{' × '.join(map(str, tensor.shape[:-1]))} as {rows:,} rows")
    if grid.shape != (rows, columns):
        notes.append(f"{rows:,} × {columns:,} weights drawn as {grid.shape[0]} × {grid.shape[1]} cells of mean density")
    if step > 1:
        notes.append(f"from every {step}th row")
    content = base64.b64encode(np.round(255 * grid).astype(np.uint8).tobytes()).decode()
    return {"rows": grid.shape[0], "columns": grid.shape[1], "cells": content}, "; ".join(notes)


def bits_of(tensor: RandomTensor, start: int, stop: int) -> Bits:
    """Give some of a mask as zeros and ones, without spelling out the rest where it is packed."""
    mask = tensor.mask
    if isinstance(mask, FullMask):
        return np.ones(stop - start, dtype=np.uint8)
    if isinstance(mask, PackedMask):
        first = start // 8
        return np.unpackbits(mask.bits[first : -(-stop // 8)], bitorder="little")[start - 8 * first :][: stop - start]
    return mask.to_bool().flatten()[start:stop].numpy().view(np.uint8)


def downsample(bits: Bits, rows: int, columns: int) -> npt.NDArray[np.float64]:
    """Average a matrix over rows x columns cells of about equal size.

    Example:
        >>> downsample(np.array([[1, 1, 0, 0], [1, 0, 0, 0]], dtype=np.uint8), 1, 2).tolist()
        [[0.75, 0.0]]
    """
    down, across = (np.arange(n + 1) * size // n for n, size in zip((rows, columns), bits.shape, strict=True))
    sums = np.add.reduceat(bits, across[:-1], axis=1, dtype=np.int64)
    sums = np.add.reduceat(sums, down[:-1], axis=0)
    grid: npt.NDArray[np.float64] = sums / np.outer(np.diff(down), np.diff(across))
    return grid


def _distribution(seed: int, tensor: RandomTensor) -> dict[str, Json]:
    """Count weights, all and kept, by value; of a large tensor in stretches spread evenly over it."""
    whole = tensor.numel <= SAMPLES * SAMPLE
    starts = [0] if whole else [k * (tensor.numel - SAMPLE) // (SAMPLES - 1) // 8 * 8 for k in range(SAMPLES)]
    stops = [tensor.numel] if whole else [start + SAMPLE for start in starts]
    stretches = list(zip(starts, stops, strict=True))
    weights = np.concatenate(
        [random_chunk(seed, tensor.name, a, b, tensor.distribution, tensor.scale).numpy() for a, b in stretches]
    )
    kept = np.concatenate([bits_of(tensor, a, b) for a, b in stretches]).astype(bool)
    reach = float(np.abs(weights).max()) or 1.0
    edges = np.linspace(-reach, reach, BINS + 1)
    return {
        "reach": reach,
        "all": np.histogram(weights, edges)[0].tolist(),
        "kept": np.histogram(weights[kept], edges)[0].tolist(),
        "of": len(weights),
        "numel": tensor.numel,
    }
