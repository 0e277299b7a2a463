"""Lemma 4/7: a linear map as the product of two masked random matrices."""

from typing import get_args

import torch
from torch import Tensor

from strongticket.checks import as_seed
from strongticket.construct import certify
from strongticket.construct.assignment import Assignment
from strongticket.construct.given import LinearTarget, as_linear, tensors_of
from strongticket.construct.plan import Plan, Product, Wanted
from strongticket.construct.source import USUAL_ITEMS, Blocks, Init, RandomMatrix, as_width, check_option, plain_scale
from strongticket.ops.arrays import Array
from strongticket.ops.subset_sum import Effort
from strongticket.tickets.content import digest_of_tensors
from strongticket.tickets.tensors import DenseTensor
from strongticket.tickets.ticket import Ticket


def construct_linear(
    target: LinearTarget,
    *,
    hidden_width: int | None = None,
    seed: int = 0,
    init: Init = "theory",
    blocks: Blocks = "input",
    assignment: Assignment = "adaptive",
    input_norm: float | None = None,
    samples: Array | None = None,
    effort: Effort = "default",
    device: torch.device | str | None = None,
) -> Ticket:
    r"""Prune $\tilde W_2 \tilde W_1$ into a matrix (Lemma 7).

    Args:
        target: a `torch.nn.Linear`, or its matrix $W$, (d_out, d_in), as a tensor, an array or a list. A bias is stored
            unchanged and is exact.
        hidden_width: $n$, a multiple of the size of the side that has the blocks: each entry gets n / size random
            numbers, its items. By default 20 items. `width_for` finds the least width for a given error.
        seed: seed of the random weights.
        init: "theory" and "printed" draw U[-1, 1], "xavier" draws Xavier's uniform.
        blocks: divide the hidden units on the "input" side, as in the paper, or on the "smaller" side.
        assignment: which input each hidden unit serves. "adaptive" chooses from the weights and the target, and keeps
            equal blocks where these are better; "equal" uses blocks of consecutive units, as in the paper.
        input_norm: $\alpha$, the largest norm the certificate covers. By default that of `samples`, or 1, as in the
            lemma. `construct_attention` has another default: compare certificates only at the same `input_norm`.
        samples: inputs (..., d_in) to take $\alpha$ from.
        effort: for the subset sums; "high" comes closer with 40 or more items per entry, at milliseconds each.
        device: where the subset sums are solved.

    Returns:
        A ticket with tensors `first` (n, d_in) and `second` (d_out, n), and the bias as dense `bias` if there is one.

    Example:
        >>> ticket = construct_linear(torch.tensor([[0.25, -0.5]]), hidden_width=48)
        >>> ticket.certificate.error < 1e-4
        True
        >>> construct_linear([[0.25, -0.5]], hidden_width=48).certificate.error < 1e-4
        True
        >>> sorted(construct_linear(torch.nn.Linear(2, 3), hidden_width=48).dense)
        ['bias']
    """
    weight, bias = as_linear(target)
    check_option("blocks", blocks, get_args(Blocks))
    side = min(weight.shape) if blocks == "smaller" else weight.shape[1]
    n, seed = as_width("hidden_width", USUAL_ITEMS * side if hidden_width is None else hidden_width), as_seed(seed)
    alpha = certify.input_norm_of(input_norm, samples, width=weight.shape[1], default=1.0)
    plan = plan_linear(weight, n, init, blocks, bias)
    pruned = plan.prune(seed=seed, assignment=assignment, effort=effort, device=device)
    return Ticket(
        seed=seed,
        tensors=[tensor for product in pruned.values() for tensor in product.tensors],
        dense=plan.biases,
        architecture={"family": "linear", **plan.settings, "init": init, "blocks": blocks},
        certificate=certify.as_stored(certify.linear(pruned, alpha, digest_of_tensors(tensors_of(target)))),
    )


def plan_linear(weight: Tensor, n: int, init: Init, blocks: Blocks = "input", bias: Tensor | None = None) -> Plan:
    """Plan one product with n hidden units for the whole map."""
    d_out, d_in = weight.shape
    first, second = layer_matrices("", d_in, d_out, n, init)
    if blocks == "smaller" and d_out < d_in:
        product = Product(blocked=second, free=first, transposed=True, free_first=True)
    else:
        product = Product(blocked=first, free=second)
    return Plan(
        settings={"d_in": d_in, "d_out": d_out, "hidden_width": n, **({} if bias is None else {"bias": True})},
        products={"product": Wanted(product, weight.detach().double())},
        biases=[] if bias is None else [DenseTensor(name="bias", value=bias)],
        bias_rounding={},
    )


def layer_matrices(prefix: str, d_in: int, d_out: int, n: int, init: Init) -> tuple[RandomMatrix, RandomMatrix]:
    """Describe the two random layers with n hidden units that stand for one linear map."""
    return (
        RandomMatrix(name=f"{prefix}first", coordinates=d_in, units=n, unit_axis=0, scale=plain_scale(init, d_in, n)),
        RandomMatrix(
            name=f"{prefix}second", coordinates=d_out, units=n, unit_axis=1, scale=plain_scale(init, n, d_out)
        ),
    )
