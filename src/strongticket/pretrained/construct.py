"""Prune a random network into a pretrained model's attention and, on request, its MLPs: part by part, one ticket."""

import math
import warnings
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import get_args

import torch
from torch import nn

from strongticket.bounds.upward import up_digits
from strongticket.checks import as_seed
from strongticket.cluster import Cluster
from strongticket.construct.assignment import Assignment
from strongticket.construct.certify import as_stored, describe_assignment, describe_unreachable
from strongticket.construct.source import as_width, check_option
from strongticket.ops.subset_sum.checks import check_device
from strongticket.parallel import one_thread, run_tasks
from strongticket.pretrained.check import Inputs, check_ticket_in_model
from strongticket.pretrained.checkpoint import Checkpoint
from strongticket.pretrained.families import Parts, What
from strongticket.pretrained.pieces import Piece, Solved
from strongticket.pretrained.predict import check_memory, predict
from strongticket.pretrained.target import Target
from strongticket.tickets.content import digest_of_masks
from strongticket.tickets.details import PartDetails
from strongticket.tickets.tensors import Certificate, Digests
from strongticket.tickets.ticket import Ticket
from strongticket.tickets.weights_digest import Weights, digest_of_weights

FEWEST_ITEMS, MOST_ITEMS = 4, 32
SCOPE = "each part by itself, for inputs of at most its own norm; nothing is claimed from end to end"

# Called with the number of subset sums done since the last call.
Progress = Callable[[int], object]
# (part, upper bound on the norm of its inputs) -> the norm to certify it for
InputNorm = Callable[[str, float], float]


def construct_pretrained(
    model: nn.Module,
    *,
    items: int = 20,
    seed: int = 0,
    what: What = "attention",
    parts: Parts = "merged",
    assignment: Assignment = "adaptive",
    device: torch.device | str = "cpu",
    workers: int = 1,
    dask: str | Cluster | None = None,
    checkpoint: str | PathLike[str] | None = None,
    inputs: Inputs | None = None,
    progress: Progress | None = None,
    warn: Callable[[str], object] = warnings.warn,
) -> Ticket:
    r"""Prune random matrices into a pretrained model's (Theorem 3, Lemma 2), part by part.

    With "merged", each head becomes two products of random matrices, `items` times d_model units wide; with
    "attention+mlp", each linear map of an MLP also becomes two random layers with a ReLU between them. With "linear",
    each linear map becomes the product of two random matrices (Lemma 7). Everything else stays the model's own, and
    biases are exact. The ticket does not depend on the device, the number of workers or interruptions. Before it is
    returned, the model is run with and without it on random inputs; the difference must agree with the certificates.

    Args:
        model: a Hugging Face model of a known family (`docs/families.md`), or a transformer of `torch.nn`;
            `docs/adding-a-model.md` shows how to describe another.
        items: random products per entry of a merged matrix, 4 to 32; in an MLP, this many on average.
        seed: seed of the random weights.
        what: "attention" or "attention+mlp".
        parts: "merged" where possible, or "linear" everywhere: smaller by half the number of heads.
        assignment: as in `construct_linear`.
        device: where subset sums are solved.
        workers: local processes, one thread each.
        dask: a Dask cluster to run on instead, or the address of its scheduler.
        checkpoint: folder in which finished parts are kept, so that a second call resumes; the caller removes it once
            the ticket is saved.
        inputs: inputs of the model's backbone, for models for which random ones cannot be made.
        progress: called with the number of sums just done.
        warn: called with a message if something in `checkpoint` is damaged and must be done again.

    Returns:
        A ticket for `strongticket.attach`, with a certificate for each part, on inputs as large as the LayerNorm
        before the part can produce.
    """
    check_option("what", what, get_args(What))
    check_option("parts", parts, get_args(Parts))
    check_option("assignment", assignment, get_args(Assignment))
    items, seed = as_width("items", items), as_seed(seed)
    if not FEWEST_ITEMS <= items <= MOST_ITEMS:
        raise ValueError(
            f"items must be {FEWEST_ITEMS} to {MOST_ITEMS}; got {items}. Fewer reach too little, and each extra one "
            "halves the error but takes 1.4 times the work."
        )
    if dask is None:
        check_device(torch.device(device))
    target = Target(model, what, parts)
    for layer, part in target.parts.values():
        part.check(layer.config)
    sha256, architecture = target.sha256(), target.describe(items)
    if wrong := next((name for name, weight in model.named_parameters() if not weight.isfinite().all()), ""):
        raise ValueError(f"{wrong} must be finite; with NaN or infinity in it, no ticket can be tested in the model.")
    work = target.pieces(items, seed, assignment, str(torch.device(device)))
    pieces = [piece for part in work.values() for piece in part]
    if dask is None:
        check_memory(predict(pieces), torch.device(device).type, workers)
    # The hash covers only numbers; the architecture says how they are split into heads.
    settings: dict[str, object] = {**architecture, "target_sha256": sha256, "seed": seed, "assignment": assignment}
    matrices = [matrix for piece in pieces for matrix in piece.matrices()]
    weights = [Weights(matrix.name, math.prod(matrix.shape), "uniform", matrix.scale) for matrix in matrices]
    with (
        Checkpoint(Path(checkpoint) if checkpoint is not None else None, settings, warn).open() as kept,
        # It depends only on the seed and the shapes, so it is computed alongside the subset sums.
        digest_of_weights(seed, weights, device=device if dask is None else "cpu") as digest,
    ):
        found = _solve_all(pieces, kept, workers, dask, progress)
        solved = {name: [found[piece.name] for piece in part] for name, part in work.items()}
        ticket = Ticket(
            seed=seed,
            tensors=[tensor for piece in pieces for tensor in piece.tensors(found[piece.name])],
            dense=target.biases(),
            architecture=architecture,
            certificate=as_stored(certify_parts(target, solved, sha256)),
        )
        # A GPU multiplies the masked matrices out much faster, but is used only if requested.
        on_gpu = dask is None and torch.device(device).type == "cuda"
        check_ticket_in_model(target, ticket, inputs, device if on_gpu else None)
        return Ticket.of(ticket, Digests(masks=digest_of_masks(ticket), weights=digest()))


def _solve_all(
    pieces: list[Piece], kept: Checkpoint, workers: int, dask: str | Cluster | None, progress: Progress | None
) -> dict[str, Solved]:
    report = progress or (lambda done: None)
    found: dict[str, Solved] = {}
    for piece in pieces:
        if (earlier := kept.load(piece)) is not None:
            found[piece.name] = earlier
            report(piece.sums)
    missing = [piece for piece in pieces if piece.name not in found]

    def finished(index: int, solved: Solved) -> None:
        kept.keep(solved)
        report(missing[index].sums)

    for solved in run_tasks(Piece.solve, missing, workers=workers, dask=dask, progress=finished):
        found[solved.name] = solved
    return found


def certify_parts(
    target: Target,
    solved: dict[str, list[Solved]],
    sha256: str,
    input_norm: InputNorm = lambda name, bound: up_digits(bound),
) -> Certificate:
    """Bound the error of every part on the largest inputs it can get, rounded up as stored."""
    parts: list[PartDetails] = []
    for name, (layer, part) in target.parts.items():
        with one_thread():
            alpha = input_norm(name, part.largest_input(layer))
            error, details = part.certify(layer, alpha, solved[name])
        parts.append(
            {
                "part": name,
                "input_norm": alpha,
                "error": error,
                "worst_entry": max(piece.worst_entry for piece in solved[name]),
                "worst_reached": max(piece.worst_reached for piece in solved[name]),
                "unreachable": sum(piece.n_unreachable for piece in solved[name]),
                **details,
            }
        )
    ways = {name: way for pieces in solved.values() for piece in pieces for name, way in piece.assigned.items()}
    missed = [entry for pieces in solved.values() for piece in pieces for entry in piece.unreachable]
    return Certificate(
        error=max(part["error"] for part in parts),
        # A statement about all parts at once holds only for inputs that all of them cover.
        input_norm=min(part["input_norm"] for part in parts),
        target_sha256=sha256,
        details={
            "scope": SCOPE,
            "parts": parts,
            **describe_assignment(ways),
            "unreachable": describe_unreachable(missed, sum(part["unreachable"] for part in parts)),
        },
    )
