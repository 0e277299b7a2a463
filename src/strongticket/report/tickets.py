"""Inside a ticket: each tensor's density, its mask as a picture, and the weights drawn and kept."""

import base64
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from strongticket.charts.parts import Cells, DrawnTensor, Histogram, Inspector, Section, Table, number, sentence
from strongticket.ops.rng import random_chunk
from strongticket.report.architecture import architecture_words
from strongticket.report.find import SearchRun
from strongticket.report.origin import origin
from strongticket.report.product import draw_product
from strongticket.report.records import Made, typed
from strongticket.tickets.codes import CodeMask
from strongticket.tickets.mask import FullMask, PackedMask
from strongticket.tickets.summary import Summary, mask_words, summarize
from strongticket.tickets.table import draws_of
from strongticket.tickets.tensors import Certificate, RandomTensor
from strongticket.tickets.ticket import Ticket

CELLS = 96  # of a picture, along each side
BINS = 41  # of a distribution; odd, so that one is centred at zero
MOST_BITS = 2**26  # of one mask; rows of a larger one are sampled
MOST_ROWS = 2**14  # read one by one
SAMPLES, SAMPLE = 16, 2**14  # a distribution uses at most 16 stretches of this many weights

Bits = npt.NDArray[np.uint8]
Weights = npt.NDArray[np.float32]


@dataclass(slots=True)
class Budget:
    """How much a page has room and time for; everything drawn is subtracted."""

    tickets: int = 12
    pictures: int = 200
    bits: int = 2**28


def ticket_section(path: Path, name: str, place: int, budget: Budget, searches: Sequence[SearchRun] = ()) -> Section:
    """Show one ticket, within the budget; one of the searches may have found it."""
    ticket = Ticket.load(path)
    summary = summarize(ticket, path)
    product = draw_product(ticket)
    tensors = [_draw(ticket, tensor, budget) for tensor in ticket.tensors.values()]
    kept, besides = "for each tensor which of them are kept", summary.besides_words()
    held = f"{kept}, and {besides}" if besides else f"and {kept}"
    undrawn = sum("grid" not in tensor for tensor in tensors)
    caption = "Pick a tensor. Blue: kept weights; blank: dropped ones."
    if meanings := summary.mask_meanings():
        caption += f" Masks: {meanings}."
    if undrawn:
        caption += f" {undrawn} of {len(tensors)} tensors have no picture, but a reason in its place."
    inspector = Inspector(
        title="Which random weights are kept, tensor by tensor",
        caption=caption,
        tensors=tensors,
        tables=(_tensor_table(tensors),),
    )
    return Section(
        anchor=f"ticket-{place}",
        name=name,
        chapter="Tickets",
        title=f"Inside a ticket: {name}",
        lead=f"The file holds a seed, which gives every random weight, {held}. "
        f"{sentence(summary.rest_words()) or 'That is the whole network'}.",
        finding=f"{summary.kept:,} of {ticket.numel:,} random weights kept, {summary.file_bytes:,} bytes",
        blocks=(*([product] if product else []), _facts(summary), inspector),
        origin=_origin(path, ticket, searches),
    )


def _origin(path: Path, ticket: Ticket, searches: Sequence[SearchRun]) -> dict[str, str]:
    """Read from the metadata how a ticket was made; the folder of its search says so, too."""
    hows = []
    for facts in (ticket.metadata, *ticket.metadata.values()):
        with suppress(TypeError):  # metadata may be anything: ignore other types
            hows.append(typed(Made, facts))
    for search in searches:
        found = search.result.found if search.result else None
        if found and found.get("identity") == ticket.identity and search.folder.resolve() == path.parent.resolve():
            hows.append(search.made)
    return origin([path], hows, seeds=[ticket.seed])


def _facts(summary: Summary) -> Table:
    ticket = summary.ticket
    facts = {
        "weights": summary.weights_words(),
        "nonzero": summary.nonzero_words(),
        "dense": summary.dense_words(),
        "strong": summary.strong_words(),
        "size": summary.size_words(),
        "network": f"{architecture_words(ticket.architecture):.400}" or "not given",
        "found by": _search_words(ticket.metadata.get("search")),
        "certificate": _certificate(ticket.certificate),
        "identity": ticket.identity,
    }
    rows = [(name, fact) for name, fact in facts.items() if fact]
    return Table(caption="What the file says", columns=(), rows=rows, words=2)


def _search_words(search: object) -> str:
    """Say how a search ended; metadata may be anything, so missing facts are left out."""
    if not isinstance(search, Mapping):
        return ""
    words = [f"search on {search.get('data', 'a text')}"]
    if isinstance(loss := search.get("validation_loss"), int | float):
        words.append(f"validation loss {loss:.4f} nats per token")
    if isinstance(step := search.get("step"), int):
        words.append(f"at step {step:,}")
    return ", ".join(words)


def _certificate(certificate: Certificate | None) -> str:
    return f"{certificate.in_words(number)}, as stored" if certificate else "none"


def _tensor_table(tensors: Sequence[DrawnTensor]) -> Table:
    rows = [(t["name"], t["shape"], t["drawn"], t["kind"], f"{t['kept']:,}", f"{t['density']:.4f}") for t in tensors]
    columns = ("tensor", "shape", "weights", "mask", "kept", "density")
    return Table(caption="Tensors", columns=columns, rows=rows, words=4)


def _draw(ticket: Ticket, tensor: RandomTensor, budget: Budget) -> DrawnTensor:
    described: DrawnTensor = {
        "name": tensor.name,
        "shape": " × ".join(f"{side:,}" for side in tensor.shape) or "scalar",
        "drawn": f"{tensor.distribution}, scale {tensor.scale:.4g}",
        "kind": mask_words(tensor.mask),
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
    """Say why a tensor cannot be drawn; empty if it can."""
    _, columns = _sides(tensor.shape)
    rule = not isinstance(tensor.mask, PackedMask | FullMask)
    if not tensor.numel:
        return "the tensor is empty"
    if columns > MOST_BITS:
        return f"a row of {columns:,} weights is too large to draw"
    if rule and tensor.numel > MOST_BITS:
        # The rows of a rule cannot be read one by one.
        return f"a mask of {tensor.numel:,} weights, given as {tensor.mask.kind}, is too large to draw"
    if budget.pictures < 1 or budget.bits < min(tensor.numel, MOST_BITS):
        return "the page has no room for more"
    return ""


def _sides(shape: tuple[int, ...]) -> tuple[int, int]:
    """Flatten a tensor to two axes: its last axis across, all others down."""
    return math.prod(shape[:-1]), shape[-1] if shape else 1


def _picture(tensor: RandomTensor, rows: int, columns: int) -> tuple[Cells, str]:
    """Return the mask as at most CELLS x CELLS densities of one byte each, and notes on how it was reduced."""
    step = -(-rows * columns // MOST_BITS)  # 1 unless the mask is too large to read whole
    if step > 1:
        step = max(step, -(-rows // MOST_ROWS))
        bits = np.stack([bits_of(tensor, row * columns, (row + 1) * columns) for row in range(0, rows, step)])
    else:
        bits = bits_of(tensor, 0, rows * columns).reshape(rows, columns)
    grid = downsample(bits, min(len(bits), CELLS), min(columns, CELLS))
    notes = []
    if len(tensor.shape) > 2:
        notes.append(f"{' × '.join(map(str, tensor.shape[:-1]))} as {rows:,} rows")
    if grid.shape != (rows, columns):
        notes.append(f"{rows:,} × {columns:,} weights drawn as {grid.shape[0]} × {grid.shape[1]} cells of mean density")
    if step > 1:
        notes.append(f"from one row in {step:,}")
    content = base64.b64encode(np.round(255 * grid).astype(np.uint8).tobytes()).decode()
    return {"rows": grid.shape[0], "columns": grid.shape[1], "cells": content}, "; ".join(notes)


def bits_of(tensor: RandomTensor, start: int, stop: int) -> Bits:
    """Return part of a mask as zeros and ones, without unpacking the rest."""
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


def _distribution(seed: int, tensor: RandomTensor) -> Histogram:
    """Count weights, all and kept, by value; a large tensor is sampled in evenly spread stretches."""
    starts = [k * (tensor.numel - SAMPLE) // (SAMPLES - 1) // 8 * 8 for k in range(SAMPLES)]
    whole = tensor.numel <= SAMPLES * SAMPLE
    stretches = [(0, tensor.numel)] if whole else [(start, start + SAMPLE) for start in starts]
    first = draws_of(tensor.mask.table)[0]
    weights = np.concatenate([_drawn(seed, tensor, a, b, first) for a, b in stretches])
    kept = np.concatenate([_kept(seed, tensor, a, b) for a, b in stretches])
    reach = float(np.abs(np.concatenate([weights, kept])).max()) or 1.0
    edges = np.linspace(-reach, reach, BINS + 1)
    return {
        "reach": reach,
        "all": np.histogram(weights, edges)[0].tolist(),
        "kept": np.histogram(kept, edges)[0].tolist(),
        "of": len(weights),
        "numel": tensor.numel,
    }


def _kept(seed: int, tensor: RandomTensor, start: int, stop: int) -> Weights:
    """Return the weights kept in a range, each times its coefficient."""
    chosen = bits_of(tensor, start, stop)
    if isinstance(tensor.mask, CodeMask):
        chosen = tensor.mask.codes().flatten().numpy()[start:stop]
    parts = []
    for code, (coefficient, draw) in enumerate(tensor.mask.table):
        if coefficient and (chosen == code).any():
            drawn = _drawn(seed, tensor, start, stop, draw)
            parts.append(drawn[chosen == code] * np.float32(coefficient))
    return np.concatenate(parts) if parts else np.empty(0, np.float32)


def _drawn(seed: int, tensor: RandomTensor, start: int, stop: int, draw: int) -> Weights:
    return random_chunk(seed, tensor.name, start, stop, tensor.distribution, tensor.scale, draw=draw).numpy()
