"""What is proved about a constructed ticket: norms of the actual errors, propagated by `strongticket.bounds`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from strongticket.bounds.certificate import (
    AttentionNorms,
    BlockNorms,
    Envelope,
    HeadNorms,
    LinearNorms,
    propagate_attention,
    propagate_feedforward,
    propagate_transformer,
)
from strongticket.bounds.checks import Variant
from strongticket.bounds.upward import up_digits
from strongticket.checks import as_real
from strongticket.construct.norms import frobenius_norm, largest_row_norm, spectral_norm, spectral_norms
from strongticket.construct.product import Miss, Pruned, PrunedHead
from strongticket.construct.source import check_target
from strongticket.models.attention import MergedAttention
from strongticket.models.transformer import FeedForward
from strongticket.ops.arrays import Array, as_tensor
from strongticket.tickets.details import Details, HeadDetails, Unreachable
from strongticket.tickets.tensors import Certificate

# This many of the worst unreachable entries are listed, which takes under a megabyte; all are counted.
LISTED = 10_000


class PrunedAttention(NamedTuple):
    """An attention of the target, and its pruned products."""

    merged: MergedAttention
    heads: Mapping[str, Pruned]


class PrunedNetwork(NamedTuple):
    """A ReLU network of the target, or a linear map, and its pruned products."""

    network: FeedForward
    layers: Mapping[str, Pruned]


class PrunedBlock(NamedTuple):
    """A block of the target, and its pruned products."""

    attention: PrunedAttention
    feedforward: PrunedNetwork


def as_samples(samples: Array, width: int) -> Tensor:
    """Convert inputs (..., width) to float64 on the CPU; refuse none, NaN, infinity, and other numbers."""
    given = as_tensor("samples", samples)
    # Converted, only the real parts of complex numbers would be left, and truth values would become numbers.
    if given.is_complex() or given.dtype == torch.bool:
        raise ValueError(f"samples must be real numbers; got {given.dtype}.")
    inputs = given.detach().double()
    if not inputs.numel() or inputs.shape[-1:] != (width,):
        raise ValueError(f"samples must be (..., {width}) with at least one input; got {tuple(inputs.shape)}.")
    check_target("samples", inputs)
    return inputs.cpu()


def input_norm_of(input_norm: float | None, samples: Array | None, *, width: int, default: float) -> float:
    r"""Determine $\alpha$: as given, or the largest norm of the samples (..., width), or the default."""
    if input_norm is not None and samples is not None:
        raise ValueError("pass input_norm or samples, not both.")
    if samples is not None:
        # A float32 norm may round down; the certificate must cover the sample itself.
        input_norm = largest_row_norm(as_samples(samples, width).reshape(-1, width))
        if not 0 < input_norm < math.inf:
            raise ValueError(
                f"samples must have a largest norm that is positive and finite; got {input_norm}. "
                "Use other samples, or pass input_norm."
            )
    return default if input_norm is None else as_input_norm(input_norm)


def as_input_norm(input_norm: float) -> float:
    r"""Check that $\alpha$ is a positive number."""
    if not 0 < (alpha := as_real(input_norm)) < math.inf:
        raise ValueError(f"input_norm must be a positive finite number; got {input_norm!r:.40}.")
    return alpha


def linear(pruned: Mapping[str, Pruned], input_norm: float, target_sha256: str) -> Certificate:
    """Certify a linear map: the error's norm times the input's."""
    layer = LinearNorms(norm=0.0, error=pruned["product"].norm())
    error = propagate_feedforward(Envelope(input_norm), [layer]).error
    return _certificate(error, input_norm, target_sha256, {"error_norm": layer.error}, pruned)


def feedforward(
    network: FeedForward, layers: Mapping[str, Pruned], input_norm: float, target_sha256: str
) -> Certificate:
    """Certify a ReLU network layer by layer."""
    norms = _layer_norms(network, layers)
    error = propagate_feedforward(Envelope(input_norm), norms).error
    details: Details = {"layers": [{"norm": n.norm, "error_norm": n.error} for n in norms]}
    return _certificate(error, input_norm, target_sha256, details, layers)


def attention(
    merged: MergedAttention, heads: Mapping[str, Pruned], input_norm: float, target_sha256: str
) -> Certificate:
    """Certify an attention, head by head; the details also give the paper's form of the bound."""
    norms = _attention_norms(merged, heads)

    def error(variant: Variant) -> float:
        inputs = Envelope(input_norm)
        return propagate_attention(inputs, norms, variant=variant, d_model=merged.vo.shape[1]).error

    details: Details = {"heads": [describe_head(head) for head in norms.heads]}
    details["paper_error"] = _finite(error("paper"))
    return _certificate(error("tight"), input_norm, target_sha256, details, heads)


def transformer(blocks: list[PrunedBlock], input_norm: float, target_sha256: str) -> Certificate:
    """Certify a transformer block by block."""
    norms = [
        BlockNorms(attention=_attention_norms(*block.attention), feedforward=tuple(_layer_norms(*block.feedforward)))
        for block in blocks
    ]
    d_model = blocks[0].attention.merged.vo.shape[1]
    tight = propagate_transformer(Envelope(input_norm), norms, d_model=d_model)
    paper = propagate_transformer(Envelope(input_norm), norms, variant="paper", d_model=d_model)
    details: Details = {
        "blocks": [
            {
                "error": _finite(envelope.error),
                "norm": _finite(envelope.norm),
                "heads": [describe_head(head) for head in block.attention.heads],
                "layers": [{"norm": layer.norm, "error_norm": layer.error} for layer in block.feedforward],
            }
            for envelope, block in zip(tight, norms, strict=True)
        ],
        "paper_error": _finite(paper[-1].error),
    }
    products = {
        f"block.{b}.{name}": pruned
        for b, block in enumerate(blocks)
        for name, pruned in (*block.attention.heads.items(), *block.feedforward.layers.items())
    }
    return _certificate(tight[-1].error, input_norm, target_sha256, details, products)


def head_norms(qk: Tensor, vo: Tensor, head: PrunedHead) -> HeadNorms:
    """Compute the norms of one head of the target, (d or d + 1, d) and (d, d_out), and of its errors."""
    d = len(vo)
    qk_error, vo_error, qk_norm, vo_norm = spectral_norms([head.qk.error[:d], head.vo.error, qk[:d], vo])
    return HeadNorms(
        qk_error=qk_error + frobenius_norm(head.qk.rounding[:d]),
        qk_norm=qk_norm,
        vo_error=vo_error + frobenius_norm(head.vo.rounding),
        vo_norm=vo_norm,
        # Without a query bias there is no row d, and these are 0.
        query_bias_error=spectral_norm(head.qk.error[d:]) + frobenius_norm(head.qk.rounding[d:]),
        query_bias_norm=spectral_norm(qk[d:]),
    )


def _attention_norms(merged: MergedAttention, pruned: Mapping[str, Pruned]) -> AttentionNorms:
    heads = [PrunedHead(pruned[f"head.{j}.qk"], pruned[f"head.{j}.vo"]) for j in range(len(merged.qk))]
    qk, vo = merged.qk.detach().double(), merged.vo.detach().double()
    bias = merged.output_bias
    return AttentionNorms(
        heads=tuple(head_norms(qk[j], vo[j], head) for j, head in enumerate(heads)),
        bias_norm=spectral_norm(bias.detach()[None]) if bias is not None else 0.0,
        bias_error=spectral_norm(merged.bias_rounding[None]),
    )


def _layer_norms(network: FeedForward, layers: Mapping[str, Pruned]) -> list[LinearNorms]:
    return [
        LinearNorms(
            norm=spectral_norm(weight.detach()),
            error=layer.norm(),
            bias_norm=spectral_norm(bias.detach()[None]) if bias is not None else 0.0,
        )
        for weight, bias, layer in zip(network.weights, network.biases, layers.values(), strict=True)
    ]


def describe_head(head: HeadNorms) -> HeadDetails:
    """List a head's norms for the certificate's details."""
    return {
        "qk_error": head.qk_error,
        "qk_norm": head.qk_norm,
        "query_bias_error": head.query_bias_error,
        "vo_error": head.vo_error,
        "vo_norm": head.vo_norm,
    }


def _certificate(
    error: float, input_norm: float, target_sha256: str, details: Details, products: Mapping[str, Pruned]
) -> Certificate:
    if not math.isfinite(error):
        raise ValueError("the certificate overflows float64: the target's norms are too large.")
    missed = [(name, miss) for name, pruned in products.items() for miss in pruned.unreachable]
    ways = {name: pruned.assigned for name, pruned in products.items()}
    details = {**details, **describe_assignment(ways), "unreachable": describe_unreachable(missed)}
    return Certificate(error=error, input_norm=input_norm, target_sha256=target_sha256, details=details)


def as_stored(certificate: Certificate) -> Certificate:
    """Round errors and norms up to six digits: the last digits depend on the machine and would make files differ."""
    return replace(certificate, error=up_digits(certificate.error), details=_rounded(certificate.details))


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return up_digits(value) if isinstance(value, float) else value


def describe_assignment(ways: Mapping[str, str]) -> Details:
    """List which products have adaptive units and which kept equal blocks; empty if none is adaptive."""
    if not any(way == "adaptive" for way in ways.values()):
        return {}
    kept = [name for name, way in ways.items() if way == "equal"]
    return {"assignment": {"adaptive": len(ways) - len(kept), "equal": kept}}


def describe_unreachable(missed: Sequence[tuple[str, Miss]], count: int | None = None) -> Unreachable:
    """Count the entries that no subset reaches, and list the worst; `count` replaces the number if more are known."""
    return {
        "count": len(missed) if count is None else count,
        "worst": [
            {"matrix": name, "row": m.row, "column": m.column, "missed": m.missed} for name, m in worst_missed(missed)
        ],
    }


def worst_missed(missed: Sequence[tuple[str, Miss]]) -> list[tuple[str, Miss]]:
    """Return the entries to list, largest miss first."""
    return sorted(missed, key=lambda entry: (-entry[1].missed, entry[0], entry[1]))[:LISTED]


def _finite(value: float) -> float | None:
    """Return None for a bound that overflows: JSON has no infinity."""
    return value if math.isfinite(value) else None
