"""Compare a model with its ticket on real text: their outputs, and the error of each part on the same inputs."""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypedDict

import torch
from torch import Tensor, nn

from strongticket.errors import StrongTicketError, first_line
from strongticket.pretrained.attaching import attach, parts_of
from strongticket.pretrained.check import Notes
from strongticket.pretrained.parts import Mode
from strongticket.pretrained.target import Target
from strongticket.tickets.ticket import Ticket

# Called with the number of texts done since the last call.
Progress = Callable[[int], object]


class PartError(TypedDict):
    """One part on the original's inputs: the largest error of a token and what the certificate allows."""

    part: str
    error: float
    certified: float
    largest_input: float
    input_norm: float  # the largest that the certificate is for


class MapDistance(TypedDict):
    """How far the attention maps of one layer are apart."""

    layer: int
    mean_distance: float
    largest_distance: float


class Alike(TypedDict, total=False):
    """How alike the outputs are: of a causal model its loss and the divergence, of others the cosine similarity."""

    loss: dict[Literal["original", "ticket"], float]
    kl: float
    cosine: dict[Literal["mean", "min"], float]


class Outputs(Alike):
    """The outputs of a model and its ticket."""

    largest_output: float
    largest_difference: float
    float32_rounding: float
    attention_maps: list[MapDistance]


class Compared(Outputs):
    """A model and its ticket on the same texts."""

    texts: int
    tokens: int
    most_tokens: int
    cut: int  # texts that were truncated
    mode: Mode
    identity: str
    what: str
    items: int
    parts: list[PartError]


@torch.no_grad()
def compare(
    model: nn.Module,
    ticket: Ticket,
    texts: Sequence[str],
    tokenizer: Any,
    *,
    mode: Mode = "merged",
    batch_size: int = 8,
    most_tokens: int = 256,
    attaching: Progress | None = None,
    progress: Progress | None = None,
) -> Compared:
    """Run a model and its ticket on the same texts.

    Args:
        model: the original, in float32, with eager attention.
        ticket: made from the model.
        texts: inputs for the model.
        tokenizer: the model's tokenizer.
        mode: as in `attach`.
        batch_size: texts per batch.
        most_tokens: longer texts are truncated to this, or to the model's limit if that is lower.
        attaching: `progress` for `attach`, which may be slow.
        progress: called with the number of texts just done.

    Returns:
        JSON: how many texts were truncated, what the ticket stands in for, the cosine similarity of mean-pooled
        embeddings (for causal models, loss and KL divergence), the largest difference of an output and the one due to
        float32 itself, the distance of attention maps by layer, and for each part the error on the original's inputs
        with its certificate.
    """
    check_reads_text(model)
    attached = attach(model, ticket, mode, progress=attaching)
    exact: Any = copy.deepcopy(model).double()
    exact.set_experts_implementation("eager")  # if it has experts: what runs them otherwise refuses float64
    target = Target(model, ticket.architecture["what"], parts_of(ticket))
    most_tokens = min(most_tokens, target.most_tokens() or most_tokens)
    parts = _PartErrors(target, Target(attached, target.what, target.asked))
    causal, outputs = target.family.kind == "causal", []
    n_tokens = n_cut = 0
    for chosen in _batches(texts, batch_size):
        batch, cut = _tokens(chosen, tokenizer, most_tokens)
        batch = {name: tensor.to(next(model.parameters()).device) for name, tensor in batch.items()}
        try:
            real = batch["attention_mask"].bool()
            with parts.watching():
                before = _run(model, batch)
        except (LookupError, TypeError, ValueError, RuntimeError) as error:
            raise StrongTicketError(
                f"the model cannot read what the tokenizer makes of the text ({first_line(error)}); "
                "are its files those of the model?"
            ) from error
        after, precise = _run(attached, batch), _run(exact, batch)
        outputs.append(_outputs(batch["input_ids"], real, before, after, precise, causal))
        parts.add(real)
        n_tokens += int(real.sum())
        n_cut += cut
        if progress is not None:
            progress(len(real))
    return {
        "texts": len(texts),
        "tokens": n_tokens,
        "most_tokens": most_tokens,
        "cut": n_cut,
        "mode": mode,
        "identity": ticket.identity,
        "what": ticket.architecture["what"],
        "items": ticket.architecture["items"],
        **_summary(outputs, causal),
        "parts": parts.summary(ticket),
    }


def check_reads_text(model: nn.Module) -> None:
    """Refuse a model that does not read a single text."""
    target = Target(model, parts="linear")
    if target.family.kind not in ("encoder", "causal"):
        raise StrongTicketError(
            f"compare is for models that read one text; this {target.model_type} reads {target.family.kind}. "
            "Use strongticket.attach."
        )


class _Run(NamedTuple):
    output: Tensor  # hidden states, or logits
    maps: tuple[Tensor, ...]  # (batch, heads, tokens, tokens) per layer


def _run(model: nn.Module, batch: dict[str, Tensor]) -> _Run:
    result = model(**batch, output_attentions=True, use_cache=False)
    if not result.attentions or result.attentions[0] is None:
        raise StrongTicketError("the model does not show its attention; load it with attn_implementation='eager'.")
    return _Run(result[0], tuple(result.attentions))


def _batches(texts: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """Group texts of similar length, so that little of a batch is padding."""
    ordered = sorted(texts, key=len)
    return (ordered[start : start + size] for start in range(0, len(ordered), size))


def _tokens(texts: Sequence[str], tokenizer: Any, most_tokens: int) -> tuple[dict[str, Tensor], int]:
    """Return texts as a batch for a model, and how many of them were truncated."""
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    # Otherwise it would warn about long texts that are truncated only below.
    whole = tokenizer(texts, verbose=False)["input_ids"]
    # For a folder without a tokenizer, transformers may make one that has special tokens only: all texts are alike.
    if set().union(*whole) <= set(tokenizer.all_special_ids):
        raise StrongTicketError(f"the tokenizer knows nothing of {texts[0]!r:.40}; are its files those of the model?")
    batch = dict(tokenizer(texts, padding=True, truncation=True, max_length=most_tokens, return_tensors="pt"))
    return batch, sum(len(ids) > most_tokens for ids in whole)


class _Outputs(NamedTuple):
    """Results for one batch, from the outputs of the original, the ticket, and the original in float64."""

    largest: float
    largest_difference: float
    rounding: float
    maps: list[tuple[float, float]]  # by layer, the 1-norm distance between rows of attention maps: sum and largest
    rows: int  # rows in the maps of a layer
    cosines: list[float]  # of embeddings; empty for a causal model
    losses: tuple[float, float, float, int]  # causal: sums for original, ticket and KL, and the number of tokens


def _outputs(ids: Tensor, real: Tensor, before: _Run, after: _Run, precise: _Run, causal: bool) -> _Outputs:
    """Evaluate one batch; `real` (batch, tokens) marks tokens that are not padding."""
    # The original first: if its outputs are not finite, the ticket's cannot be.
    _check_finite("the original model", before.output[real])
    _check_finite("the ticket", after.output[real])
    maps = []
    for first, second in zip(before.maps, after.maps, strict=True):
        rows = (first.double() - second.double()).abs().sum(dim=-1).mT[real]  # (real tokens, heads)
        maps.append((rows.sum().item(), rows.max().item()))
    return _Outputs(
        largest=_largest(before.output[real]),
        largest_difference=_largest(after.output[real] - before.output[real]),
        rounding=_largest(precise.output[real] - before.output[real]),
        maps=maps,
        rows=int(real.sum()) * before.maps[0].shape[1],
        cosines=[] if causal else _cosines(real, before.output, after.output),
        losses=_losses(ids, real, before.output, after.output) if causal else (0.0, 0.0, 0.0, 0),
    )


def _cosines(real: Tensor, before: Tensor, after: Tensor) -> list[float]:
    """Compare averages over the tokens that are not padding, as in sentence embeddings."""
    weights = real[..., None].double()
    first, second = ((hidden.double() * weights).sum(dim=1) / weights.sum(dim=1) for hidden in (before, after))
    cosines: list[float] = torch.cosine_similarity(first, second, dim=-1).tolist()
    return cosines


def _losses(ids: Tensor, real: Tensor, before: Tensor, after: Tensor) -> tuple[float, float, float, int]:
    known = real[:, 1:] & real[:, :-1]  # both a token and the one before it
    first, second = (logits[:, :-1][known].double().log_softmax(dim=-1) for logits in (before, after))
    original, ticket = (-x.gather(1, ids[:, 1:][known][:, None]).sum().item() for x in (first, second))
    return original, ticket, (first.exp() * (first - second)).sum().item(), int(known.sum())


def _summary(batches: Sequence[_Outputs], causal: bool) -> Outputs:
    """Combine all batches."""
    kind: Alike
    if causal:
        *sums, tokens = (sum(part) for part in zip(*(batch.losses for batch in batches), strict=True))
        original, ticket, kl = (part / tokens for part in sums)
        kind = {"loss": {"original": original, "ticket": ticket}, "kl": kl}
    else:
        cosines = [cosine for batch in batches for cosine in batch.cosines]
        kind = {"cosine": {"mean": sum(cosines) / len(cosines), "min": min(cosines)}}
    rows = sum(batch.rows for batch in batches)
    return {
        **kind,
        "largest_output": max(batch.largest for batch in batches),
        "largest_difference": max(batch.largest_difference for batch in batches),
        "float32_rounding": max(batch.rounding for batch in batches),
        "attention_maps": [
            {"layer": i, "mean_distance": sum(sums) / rows, "largest_distance": max(largest)}
            for i, layer in enumerate(zip(*(batch.maps for batch in batches), strict=True))
            for sums, largest in [zip(*layer, strict=True)]
        ],
    }


class _PartErrors:
    """The error of each of the ticket's parts on the original part's inputs: nothing accumulates from earlier parts."""

    def __init__(self, original: Target, attached: Target) -> None:
        self._notes, self._attached = Notes(original), attached.parts
        self.watching = self._notes.watching
        self._errors: dict[str, float] = {}
        self._norms: dict[str, float] = {}

    def add(self, real: Tensor) -> None:
        """Run the ticket's parts on the recorded inputs; any earlier, transformers would mix up the attention maps."""
        for name, (args, kwargs) in self._notes.calls.items():
            layer, part = self._attached[name]
            x, mine = args[0] if args else kwargs["hidden_states"], part.apply(layer, *args, **kwargs)
            # OPT's MLP has one row per token, without the batch.
            x, mine, theirs = (each.flatten(0, -2)[real.flatten()] for each in (x, mine, self._notes.outputs[name]))
            error = (mine.double() - theirs.double()).norm(dim=-1).max().item()
            self._errors[name] = max(self._errors.get(name, 0.0), error)
            self._norms[name] = max(self._norms.get(name, 0.0), x.norm(dim=-1).max().item())

    def summary(self, ticket: Ticket) -> list[PartError]:
        """List each part's largest error over all tokens with its certificate."""
        assert ticket.certificate is not None
        return [
            {
                "part": part["part"],
                "error": self._errors[part["part"]],
                "certified": part["error"],
                "largest_input": self._norms[part["part"]],
                "input_norm": part["input_norm"],
            }
            for part in ticket.certificate.details["parts"]
        ]


def _check_finite(whose: str, output: Tensor) -> None:
    """Refuse outputs that are not finite; a maximum would silently ignore NaN."""
    if not output.isfinite().all():
        raise StrongTicketError(
            f"the output of {whose} is not finite on these texts, so there is nothing to compare; "
            "look for NaN, infinity or huge numbers in the model's embeddings and norms."
        )


def _largest(x: Tensor) -> float:
    return float(x.abs().max())
