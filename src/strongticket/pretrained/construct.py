"""A pretrained model's attention, and if asked its MLPs, inside a random network: part by part, then one ticket."""

import math
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import get_args

import torch
from torch import nn

from strongticket.bounds.certificate import (
    AttentionNorms,
    Envelope,
    HeadNorms,
    LinearNorms,
    propagate_attention,
    propagate_feedforward,
)
from strongticket.bounds.upward import up_digits
from strongticket.checks import as_seed
from strongticket.construct.certify import as_stored, describe_head, describe_unreachable
from strongticket.construct.source import as_width, check_option
from strongticket.files import Json
from strongticket.ops.ordered import ordered_product
from strongticket.ops.subset_sum.checks import check_device
from strongticket.parallel import run_tasks
from strongticket.pretrained.adapters import Layer, Target, What
from strongticket.pretrained.checkpoint import Checkpoint
from strongticket.pretrained.parts import Part, Solved, parts_of, solve_part
from strongticket.tickets.content import digest_of_masks, digest_of_tensors
from strongticket.tickets.tensors import Certificate, DenseTensor, Digests
from strongticket.tickets.ticket import Ticket
from strongticket.tickets.weights_digest import Weights, digest_of_weights

FAMILY = "pretrained"
FEWEST_ITEMS, MOST_ITEMS = 4, 32
SCOPE = "each part by itself, for inputs of at most its own norm; nothing is claimed from end to end"

# Called with the number of subset sums that are done since the last call.
Progress = Callable[[int], object]
# (part, what bounds the norm of its inputs) -> the norm to certify it for
InputNorm = Callable[[str, float], float]


def construct_pretrained(
    model: nn.Module,
    *,
    items: int = 20,
    seed: int = 0,
    what: What = "attention",
    device: torch.device | str = "cpu",
    workers: int = 1,
    dask: str | None = None,
    checkpoint: str | PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Ticket:
    r"""Prune random matrices into a pretrained model's (Theorem 3, Lemma 2), part by part.

    Each head becomes two products of random matrices, `items` times d_model units wide. With "attention+mlp" each
    linear map of an MLP becomes two random layers with a ReLU between them. All else stays the model's own, and biases
    are exact. The ticket is the same for every device, number of workers and interruption.

    Args:
        model: a Hugging Face model of a family that has an adapter; see `docs/adding-a-model.md`.
        items: random products that meet each entry of a merged matrix, 4 to 32; of an MLP, about so many.
        seed: of the random weights.
        what: "attention" or "attention+mlp".
        device: where subset sums are solved.
        workers: local processes, one thread each.
        dask: address of a Dask scheduler to run on instead.
        checkpoint: folder in which finished parts are kept, so that a second call goes on from there; the caller
            removes it once the ticket is safe.
        progress: called with the number of sums just done.

    Returns:
        A ticket for `strongticket.attach`, with a certificate for each part, on inputs as large as the LayerNorm
        before it can make them.
    """
    check_option("what", what, get_args(What))
    items, seed = as_width("items", items), as_seed(seed)
    if not FEWEST_ITEMS <= items <= MOST_ITEMS:
        raise ValueError(
            f"items must be {FEWEST_ITEMS} to {MOST_ITEMS}; got {items}. Fewer reach too little, and each one more "
            "halves the error and costs 1.4 times the work."
        )
    if dask is None:
        check_device(torch.device(device))
    target = Target(model)
    if what == "attention+mlp":
        target.check_activation()
    sha256 = digest_of_tensors(target.tensors(what))
    parts = parts_of(target, what, items, seed, str(torch.device(device)))
    architecture = describe(target, what, items)
    # The hash covers numbers alone, and heads are how the same numbers are cut up.
    settings: dict[str, Json] = {**architecture, "target_sha256": sha256, "seed": seed}
    matrices = [matrix for part in parts for matrix in part.matrices()]
    weights = [Weights(matrix.name, math.prod(matrix.shape), "uniform", matrix.scale) for matrix in matrices]
    with (
        Checkpoint(Path(checkpoint) if checkpoint is not None else None, settings).open() as kept,
        # It depends on the seed and the shapes alone, and so is worked out beside the subset sums.
        digest_of_weights(seed, weights, device=device if dask is None else "cpu") as digest,
    ):
        solved = _solve_all(parts, kept, workers, dask, progress)
        by_name = {part.name: part for part in solved}
        ticket = Ticket(
            seed=seed,
            tensors=[tensor for part in parts for tensor in part.tensors(by_name[part.name])],
            dense=[tensor for i, layer in enumerate(target.layers()) for tensor in exact_biases(layer, i, what)],
            architecture=architecture,
            certificate=as_stored(certify_parts(target, what, by_name, sha256)),
        )
        return Ticket.of(ticket, Digests(masks=digest_of_masks(ticket), weights=digest()))


def _solve_all(
    parts: list[Part], kept: Checkpoint, workers: int, dask: str | None, progress: Progress | None
) -> list[Solved]:
    report = progress or (lambda done: None)
    found: dict[str, Solved] = {}
    for part in parts:
        if (earlier := kept.load(part)) is not None:
            found[part.name] = earlier
            report(part.sums)
    missing = [part for part in parts if part.name not in found]

    def finished(index: int, solved: Solved) -> None:
        kept.keep(solved)
        report(missing[index].sums)

    for solved in run_tasks(solve_part, missing, workers=workers, dask=dask, progress=finished):
        found[solved.name] = solved
    return [found[part.name] for part in parts]


def describe(target: Target, what: What, items: int) -> dict[str, Json]:
    """Give the settings `attach` needs, as a ticket's architecture."""
    layer = target.layer(0)
    return {
        "family": FAMILY,
        "model_type": target.model_type,
        "what": what,
        "items": items,
        "n_layers": target.n_layers,
        "n_heads": layer.n_heads,
        "d_model": layer.query.weight.shape[1],
        "init": "theory",
    }


def exact_biases(layer: Layer, i: int, what: What) -> list[DenseTensor]:
    """Give the biases as dense tensors: the attention's output bias, with the value bias in it, and the MLP's."""
    bias, _ = output_bias(layer)
    biases = {"attention.output_bias": bias}
    if what == "attention+mlp":
        biases |= {"mlp.up.bias": layer.up.bias, "mlp.down.bias": layer.down.bias}
    return [DenseTensor(name=f"layer.{i}.{name}", value=bias) for name, bias in biases.items() if bias is not None]


def output_bias(layer: Layer) -> tuple[torch.Tensor | None, float]:
    """Move the value bias behind the heads, since attention weights sum to 1; give the bias and what rounding cost."""
    value, output = layer.value.bias, layer.output.bias
    if value is None:
        return (output.double() if output is not None else None), 0.0
    weight = layer.output.weight.double()
    moved = ordered_product(weight, value.double()[None])[:, 0]  # (d_out,)
    size = (weight.abs() @ value.double().abs()) + (output.double().abs() if output is not None else 0.0)
    rounding = (len(value) + 2) * 2.0**-53 * 1.01 * float(size.norm())
    return (moved + output.double() if output is not None else moved), rounding


def certified_input_norm(name: str, bound: float) -> float:
    """Round what a part's inputs are bounded by up to what is stored, so that the error is for the stored number."""
    return up_digits(bound)


def certify_parts(
    target: Target, what: What, solved: dict[str, Solved], sha256: str, input_norm: InputNorm = certified_input_norm
) -> Certificate:
    """Bound the error of every attention and every map of an MLP, each on inputs as large as it can get."""
    parts: list[dict[str, Json]] = []
    for i, layer in enumerate(target.layers()):
        heads = [solved[f"layer.{i}.attention.head.{j}"] for j in range(layer.n_heads)]
        name = f"layer.{i}.attention"
        parts.append(_attention_part(name, layer, input_norm(name, layer.attention_norm.largest_output()), heads))
        if what == "attention+mlp":
            bounds = {"up": layer.mlp_norm.largest_output(), "down": layer.down_input_norm()}
            for which, bound in bounds.items():
                name = f"layer.{i}.mlp.{which}"
                parts.append(_map_part(name, input_norm(name, bound), solved[name]))
    missed = [entry for part in solved.values() for entry in part.unreachable]
    count = sum(part.n_unreachable for part in solved.values())
    return Certificate(
        error=max(part["error"] for part in parts),
        # A statement about all parts at once can only speak of inputs that all of them cover.
        input_norm=min(part["input_norm"] for part in parts),
        target_sha256=sha256,
        details={"scope": SCOPE, "parts": parts, "unreachable": describe_unreachable(missed, count)},
    )


def _attention_part(name: str, layer: Layer, alpha: float, heads: Sequence[Solved]) -> dict[str, Json]:
    norms = tuple(HeadNorms(**head.norms) for head in heads)
    bias, rounding = output_bias(layer)
    attention = AttentionNorms(
        heads=norms, bias_norm=float(bias.norm()) * (1 + 1e-12) if bias is not None else 0.0, bias_error=rounding
    )
    return {
        **_describe_part(name, alpha, propagate_attention(Envelope(alpha), attention).error, heads),
        "heads": [describe_head(head) for head in norms],
    }


def _map_part(name: str, alpha: float, solved: Solved) -> dict[str, Json]:
    error = propagate_feedforward(Envelope(alpha), [LinearNorms(**solved.norms)]).error
    return {**_describe_part(name, alpha, error, [solved]), **solved.norms, "error": error}


def _describe_part(name: str, input_norm: float, error: float, solved: Sequence[Solved]) -> dict[str, Json]:
    return {
        "part": name,
        "input_norm": input_norm,
        "error": error,
        "worst_entry": max(part.worst_entry for part in solved),
        "worst_reached": max(part.worst_reached for part in solved),
        "unreachable": sum(part.n_unreachable for part in solved),
    }
