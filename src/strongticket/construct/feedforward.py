"""Lemma 2 and Theorem 10: an L-layer ReLU network by 2 L random layers."""

from collections.abc import Iterable, Sequence
from typing import SupportsIndex

import torch

from strongticket.checks import as_seed
from strongticket.construct import certify
from strongticket.construct.assignment import Assignment
from strongticket.construct.given import NetworkTarget, as_feedforward, sizes_of, tensors_of
from strongticket.construct.linear import layer_matrices
from strongticket.construct.plan import Plan, Product, Wanted
from strongticket.construct.source import USUAL_ITEMS, Init, as_width, check_target
from strongticket.models.transformer import FeedForward
from strongticket.ops.arrays import Array
from strongticket.ops.subset_sum import Effort
from strongticket.tickets.content import digest_of_tensors
from strongticket.tickets.tensors import DenseTensor
from strongticket.tickets.ticket import Ticket


def construct_feedforward(
    target: NetworkTarget,
    *,
    hidden_width: int | Sequence[int] | None = None,
    seed: int = 0,
    init: Init = "theory",
    assignment: Assignment = "adaptive",
    input_norm: float | None = None,
    samples: Array | None = None,
    effort: Effort = "default",
    device: torch.device | str | None = None,
) -> Ticket:
    r"""Prune a random ReLU network of 2 L layers into a network of L layers (Lemma 2, Theorem 10).

    Args:
        target: a `torch.nn.Sequential` of Linear, ReLU, Linear and so on (Dropout, which does nothing in evaluation, is
            ignored), a `FeedForward`, a `torch.nn.Linear`, or a matrix (d_out, d_in) as a tensor, an array or a list.
        hidden_width: $n$ of each target layer, or one for all; a multiple of the layer's inputs. In the first layer
            half of the units carry positive inputs and half negative ones: n / (2 d_in) items per entry. From the
            second layer on, inputs are never negative: n / d_in items per entry, or half of that with equal blocks.
            By default 20 items per entry.
        seed: seed of the random weights.
        init: "theory" and "printed" draw U[-1, 1], "xavier" draws Xavier's uniform.
        assignment: as in `construct_linear`.
        input_norm: $\alpha$, the largest norm the certificate covers. By default that of `samples`, or 1, as in the
            lemma. `construct_attention` has another default: compare certificates only at the same `input_norm`.
        samples: inputs (..., d_in) to take $\alpha$ from.
        effort: for the subset sums; "high" comes closer with 40 or more items per entry, at milliseconds each.
        device: where the subset sums are solved.

    Returns:
        A ticket with tensors `layer.0.first`, `layer.0.second` and so on; the target's biases are dense and exact.

    Example:
        >>> target = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
        >>> ticket = construct_feedforward(target, hidden_width=480)
        >>> sorted(ticket.dense), ticket.certificate.error < 0.01
        (['layer.0.bias', 'layer.1.bias'], True)
    """
    network, seed = as_feedforward(target), as_seed(seed)
    sizes = sizes_of(network)
    usual = [USUAL_ITEMS * d * (2 if i == 0 or assignment == "equal" else 1) for i, d in enumerate(sizes[:-1])]
    widths = spread_widths("hidden_width", usual if hidden_width is None else hidden_width, len(network.weights))
    alpha = certify.input_norm_of(input_norm, samples, width=sizes[0], default=1.0)
    plan = plan_network(network, widths, init)
    pruned = plan.prune(seed=seed, assignment=assignment, effort=effort, device=device)
    sha256 = digest_of_tensors(tensors_of(target))
    return Ticket(
        seed=seed,
        tensors=[tensor for layer in pruned.values() for tensor in layer.tensors],
        dense=plan.biases,
        architecture={"family": "feedforward", **plan.settings, "init": init},
        certificate=certify.as_stored(certify.feedforward(network, pruned, alpha, sha256)),
    )


def plan_network(network: FeedForward, widths: Sequence[int], init: Init, prefix: str = "") -> Plan:
    """Plan two random layers for each layer; from the second on, inputs come from a ReLU and are never negative."""
    products: dict[str, Wanted] = {}
    for i, (weight, bias, n) in enumerate(zip(network.weights, network.biases, widths, strict=True)):
        check_target(f"the weight of layer {i}", weight)
        if bias is not None:
            check_target(f"the bias of layer {i}", bias)
        product = relu_product(f"{prefix}layer.{i}", weight.shape, n, init, nonnegative_inputs=i > 0)
        products[f"layer.{i}"] = Wanted(product, weight.detach().double())
    biases = [(f"{prefix}layer.{i}.bias", bias) for i, bias in enumerate(network.biases) if bias is not None]
    return Plan(
        settings={
            "sizes": sizes_of(network),
            "hidden_widths": list(widths),
            "biases": [bias is not None for bias in network.biases],
        },
        products=products,
        biases=[DenseTensor(name=name, value=bias) for name, bias in biases],
        bias_rounding={},
    )


def relu_product(name: str, shape: Sequence[int], n: int, init: Init, *, nonnegative_inputs: bool = False) -> Product:
    """Describe two random layers with n hidden units and a ReLU between them, for a linear map (d_out, d_in)."""
    first, second = layer_matrices(f"{name}.", shape[1], shape[0], n, init)
    return Product(blocked=first, free=second, relu=True, nonnegative_inputs=nonnegative_inputs)


def spread_widths(what: str, width: SupportsIndex | Iterable[SupportsIndex], count: int) -> tuple[int, ...]:
    """Return one width for each of `count` parts."""
    # A 0-dimensional array is one number, though its type is iterable.
    many = isinstance(width, Iterable) and getattr(width, "ndim", 1) > 0
    widths: tuple[SupportsIndex, ...] = tuple(width) if many else (width,) * count  # type: ignore[arg-type, assignment]
    if len(widths) != count:
        raise ValueError(f"{what} must be one number, or {count} of them; got {len(widths)}.")
    return tuple(as_width(what, n) for n in widths)
