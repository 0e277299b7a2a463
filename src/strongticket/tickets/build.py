"""Build a network from a ticket: the literal wide one, or the same function with its matrices multiplied out."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from strongticket.errors import StrongTicketError
from strongticket.models.attention import Attention
from strongticket.models.gpt2 import GPT2, GPT2Config
from strongticket.models.transformer import Block, FeedForward, Transformer
from strongticket.tickets.content import Content
from strongticket.tickets.from_bits import Resident, Run, check_resident, check_signed, load_bits
from strongticket.tickets.mask import BlockMask
from strongticket.tickets.owners import OwnerMask
from strongticket.tickets.restore import check_fit, load_ticket

Form = Literal["literal", "merged"]


def build(
    ticket: Content,
    form: Form = "literal",
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
    run: Run = "dense",
    resident: Resident = "planes",
) -> nn.Module:
    """Build the network a ticket describes.

    Args:
        ticket: with an `architecture` of a known family.
        form: "literal" has the source's shapes and the masked random weights; "merged" first multiplies adjacent
            matrices in float64, and has the target's size; two layers around a ReLU must be as constructed.
        dtype: of the parameters. The random weights are float32 numbers, so float64 holds them exactly.
        device: where the network is placed.
        run: "dense" stores every weight as a float; "bits" leaves signed constants in bit planes.
        resident: for "bits", "planes" also keeps the signs; "mask" redraws them when needed.
    """
    for name, value, words in (("form", form, Form), ("run", run, Run), ("resident", resident, Resident)):
        if value not in get_args(words):
            raise ValueError(f"{name} must be one of {', '.join(get_args(words))}; got {value!r}.")
    check_resident(run, resident)
    family = ticket.architecture.get("family")
    if family == "module":
        raise StrongTicketError(
            f"the ticket was found in a {ticket.architecture.get('class')!s:.80}; create one as for the "
            "search and call load_ticket(model, ticket)."
        )
    if family == "pretrained":
        raise StrongTicketError("the ticket has parts of a pretrained model: load it and call attach(model, ticket).")
    if not isinstance(family, str) or family not in _BUILDERS:
        raise StrongTicketError(
            f"this release can build {', '.join(_BUILDERS)}; the ticket's family is {family!r}. "
            "materialize() returns its masked weights by name."
        )
    if run == "bits":
        check_signed(ticket)
        if family != "gpt2" or form == "merged" or dtype != torch.float32:
            raise ValueError(
                f"run='bits' needs a gpt2 in its literal form and float32; got a {family}, {form}, {dtype}. "
                "For other modules, use attach(model, ticket, run='bits')."
            )
    if form == "merged" and family == "gpt2":
        raise ValueError("a GPT-2 has no matrices to multiply out; build it in its literal form.")
    try:
        if run == "bits":
            shell = _gpt2_without_weights(ticket.architecture, ticket)
            module = load_bits(shell, ticket, device=device or "cpu", resident=resident)
        else:
            module = _BUILDERS[family](ticket.architecture, _Weights(ticket, device), form == "merged")
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
        # A file may claim any architecture for any tensors, so any error here is the file's fault.
        raise StrongTicketError(f"the ticket's tensors do not make a {family}: {error!r:.200}") from error
    return module.to(dtype=dtype, device=device).requires_grad_(False)


class _Weights:
    """The masked weights and dense tensors of a ticket as float64, under a prefix."""

    def __init__(self, ticket: Content, device: torch.device | str | None, prefix: str = "") -> None:
        self.ticket, self.device, self.prefix = ticket, device, prefix
        self._masked = ticket.materialize(device=device)

    def below(self, prefix: str) -> "_Weights":
        return _Weights(self.ticket, self.device, f"{self.prefix}{prefix}")

    def random(self, name: str) -> Tensor:
        return self._masked[f"{self.prefix}{name}"].double()

    def dense(self, name: str) -> Tensor | None:
        tensor = self.ticket.dense.get(f"{self.prefix}{name}")
        # A copy, or the network could write into the ticket.
        return tensor.value.to(device=self.device, dtype=torch.float64, copy=True) if tensor else None


def check_blocks(ticket: Content, name: str) -> None:
    """Refuse a first layer whose units may keep several inputs: a ReLU does not split their sum by sign."""
    mask = ticket.tensors[name].mask
    if not isinstance(mask, BlockMask | OwnerMask) or mask.unit_axis != 0:
        raise ValueError(f"{name} needs a mask that keeps one input per row; its mask is of kind {mask.kind!r}.")


def _linear(settings: dict[str, Any], weights: _Weights, merged: bool) -> nn.Module:
    first, second = weights.random("first"), weights.random("second")
    return _LinearChain([second @ first] if merged else [first, second], weights.dense("bias"))


def _feedforward(settings: dict[str, Any], weights: _Weights, merged: bool) -> nn.Module:
    layers = range(len(settings["hidden_widths"]))
    firsts = [weights.random(f"layer.{i}.first") for i in layers]
    seconds = [weights.random(f"layer.{i}.second") for i in layers]
    biases = [weights.dense(f"layer.{i}.bias") for i in layers]
    if not merged:
        pairs = [matrix for pair in zip(firsts, seconds, strict=True) for matrix in pair]
        return FeedForward(pairs, [bias for b in biases for bias in (None, b)])
    for i in layers:
        check_blocks(weights.ticket, f"{weights.prefix}layer.{i}.first")
    positive, negative = (
        [second @ first.clamp(**side) for first, second in zip(firsts, seconds, strict=True)]
        for side in ({"min": 0}, {"max": 0})
    )
    return SignSplitNetwork(positive, negative, biases)


def _attention(settings: dict[str, Any], weights: _Weights, merged: bool) -> nn.Module:
    heads = range(settings["n_heads"])
    q, k, v, o = (
        torch.stack([weights.random(f"head.{j}.{part}") for j in heads]) for part in ("query", "key", "value", "output")
    )
    literal = Attention(q, k, v, o, weights.dense("output_bias"))
    return literal.merged() if merged else literal


def _transformer(settings: dict[str, Any], weights: _Weights, merged: bool) -> nn.Module:
    return Transformer(
        [
            Block(
                _attention(block["attention"], weights.below(f"block.{b}.attention."), merged),
                _feedforward(block["feedforward"], weights.below(f"block.{b}.feedforward."), merged),
            )
            for b, block in enumerate(settings["blocks"])
        ]
    )


def _gpt2(settings: dict[str, Any], weights: _Weights, merged: bool) -> nn.Module:
    shell = _gpt2_without_weights(settings, weights.ticket)
    return load_ticket(GPT2(shell.config, seed=weights.ticket.seed, device=weights.device), weights.ticket)


def _gpt2_without_weights(settings: dict[str, Any], ticket: Content) -> GPT2:
    config = _gpt2_config(settings["config"])
    # A file can claim any size, and even a model without weights takes memory for each layer.
    if config.n_layers > len(ticket.tensors) + len(ticket.dense):
        raise ValueError(f"{config.n_layers} layers need more tensors than {len(ticket.tensors) + len(ticket.dense)}")
    shell = GPT2(config, device="meta")
    check_fit(shell, ticket)
    return shell


def _gpt2_config(settings: dict[str, Any]) -> GPT2Config:
    for field in fields(GPT2Config):
        kinds = (int, float) if field.type is float else (field.type if isinstance(field.type, type) else str,)
        if type(settings[field.name]) not in kinds:
            raise ValueError(f"{field.name} is {settings[field.name]!r:.40}")
    return GPT2Config(**settings)


class SignSplitNetwork(nn.Module):
    r"""A ReLU network whose layers apply separate matrices to $x^+$ and $x^-$: $W^+ x^+ - W^- x^- + b$.

    This is what two random layers with a ReLU between them compute when each hidden unit keeps one input.
    """

    def __init__(self, positive: list[Tensor], negative: list[Tensor], biases: list[Tensor | None]) -> None:
        super().__init__()
        self.positive = nn.ParameterList(positive)
        self.negative = nn.ParameterList(negative)
        self.biases = nn.ParameterList(
            bias if bias is not None else matrix.new_zeros(len(matrix))
            for bias, matrix in zip(biases, positive, strict=True)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Apply to (..., d_in)."""
        for index, (w_plus, w_minus, bias) in enumerate(zip(self.positive, self.negative, self.biases, strict=True)):
            x = torch.relu(x) if index else x
            x = x.clamp(min=0) @ w_plus.mT + x.clamp(max=0) @ w_minus.mT + bias
        return x


class _LinearChain(nn.Module):
    """Matrices applied one after another, with a bias at the end."""

    def __init__(self, matrices: list[Tensor], bias: Tensor | None) -> None:
        super().__init__()
        self.matrices = nn.ParameterList(matrices)
        self.bias = nn.Parameter(bias) if bias is not None else None

    def forward(self, x: Tensor) -> Tensor:
        """Apply to (..., d_in)."""
        for matrix in self.matrices:
            x = x @ matrix.mT
        return x if self.bias is None else x + self.bias


_BUILDERS: dict[str, Callable[[dict[str, Any], _Weights, bool], nn.Module]] = {
    "linear": _linear,
    "feedforward": _feedforward,
    "attention": _attention,
    "transformer": _transformer,
    "gpt2": _gpt2,
}
