"""A model and its ticket side by side, on real text: what comes out, and what each part does to the same inputs."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from strongticket.errors import StrongTicketError
from strongticket.files import Json
from strongticket.pretrained.attaching import attach
from strongticket.pretrained.parts import Mode
from strongticket.pretrained.target import Target
from strongticket.tickets.ticket import Ticket

# Called with the number of texts that are done since the last call.
Progress = Callable[[int], object]


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
    progress: Progress | None = None,
) -> dict[str, Json]:
    """Run a model and its ticket on the same texts.

    Args:
        model: the original, in float32, with eager attention.
        ticket: made from it.
        texts: whatever the model reads.
        tokenizer: the model's.
        mode: as in `attach`.
        batch_size: texts at a time.
        most_tokens: longer texts are cut, to this or to what the model can take.
        progress: called with the number of texts just done.

    Returns:
        JSON: how many texts were cut, what the ticket stands in for, the cosine similarity of mean-pooled embeddings
        (for causal models loss and KL divergence), the largest difference of an output beside the one that float32
        itself makes, the distance of attention maps by layer, and for each part the error on the original's own inputs
        beside its certificate.
    """
    check_reads_text(model)
    target = Target(model, ticket.architecture["what"])
    most_tokens = min(most_tokens, target.most_tokens() or most_tokens)
    attached, exact = attach(model, ticket, mode), copy.deepcopy(model).double()
    parts = _PartErrors(target, Target(attached, target.what))
    outputs = _Outputs(causal=target.family.kind == "causal")
    n_tokens = n_cut = 0
    for chosen in _batches(texts, batch_size):
        batch, cut = _tokens(chosen, tokenizer, most_tokens)
        batch = {name: tensor.to(next(model.parameters()).device) for name, tensor in batch.items()}
        real = batch["attention_mask"].bool()
        with parts.watching():
            before = _run(model, batch)
        after, precise = _run(attached, batch), _run(exact, batch)
        outputs.add(batch["input_ids"], real, before, after, precise)
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
        **outputs.summary(),
        "parts": parts.summary(ticket),
    }


def check_reads_text(model: nn.Module) -> None:
    """Refuse a model of images, which has no tokenizer either."""
    target = Target(model)
    if target.family.kind == "image":
        raise StrongTicketError(f"compare reads text, and a {target.model_type} takes images; use strongticket.attach.")


class _Run(NamedTuple):
    output: Tensor  # hidden states, or logits
    maps: tuple[Tensor, ...]  # (batch, heads, tokens, tokens) a layer


def _run(model: nn.Module, batch: dict[str, Tensor]) -> _Run:
    result = model(**batch, output_attentions=True, use_cache=False)
    if not result.attentions or result.attentions[0] is None:
        raise StrongTicketError("the model does not show its attention; load it with attn_implementation='eager'.")
    return _Run(result[0], tuple(result.attentions))


def _batches(texts: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """Put texts of about equal length together, so that little of a batch is padding."""
    ordered = sorted(texts, key=len)
    return (ordered[start : start + size] for start in range(0, len(ordered), size))


def _tokens(texts: Sequence[str], tokenizer: Any, most_tokens: int) -> tuple[dict[str, Tensor], int]:
    """Give texts as a batch for a model, and how many of them had to be cut."""
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    # Else it would warn of texts that it has not been asked to cut yet.
    whole = tokenizer(texts, verbose=False)["input_ids"]
    batch = dict(tokenizer(texts, padding=True, truncation=True, max_length=most_tokens, return_tensors="pt"))
    return batch, sum(len(ids) > most_tokens for ids in whole)


@dataclass
class _Outputs:
    """What came out of the original, of the ticket, and of the original in float64."""

    causal: bool
    cosines: list[float] = field(default_factory=list)
    losses: list[tuple[float, float, float]] = field(default_factory=list)  # original, ticket, KL: sums over tokens
    predicted: int = 0
    largest: float = 0.0
    largest_difference: float = 0.0
    largest_rounding: float = 0.0
    map_sums: list[float] = field(default_factory=list)
    map_largest: list[float] = field(default_factory=list)
    map_rows: int = 0

    def add(self, ids: Tensor, real: Tensor, before: _Run, after: _Run, precise: _Run) -> None:
        """Take one batch; `real` (batch, tokens) tells tokens from padding."""
        # The original's first: if it has none, the ticket's cannot be better.
        _check_finite("the original model", before.output[real])
        _check_finite("the ticket", after.output[real])
        self.largest = max(self.largest, _largest(before.output[real]))
        self.largest_difference = max(self.largest_difference, _largest(after.output[real] - before.output[real]))
        self.largest_rounding = max(self.largest_rounding, _largest(precise.output[real] - before.output[real]))
        if self.causal:
            self._add_losses(ids, real, before.output, after.output)
        else:
            first, second = (_embeddings(run.output, real) for run in (before, after))
            self.cosines += torch.cosine_similarity(first, second, dim=-1).tolist()
        self._add_maps(real, before.maps, after.maps)

    def summary(self) -> dict[str, Json]:
        """Put everything together."""
        kind: dict[str, Json]
        if self.causal:
            original, ticket, kl = (sum(part) / self.predicted for part in zip(*self.losses, strict=True))
            kind = {"loss": {"original": original, "ticket": ticket}, "kl": kl}
        else:
            kind = {"cosine": {"mean": sum(self.cosines) / len(self.cosines), "min": min(self.cosines)}}
        return {
            **kind,
            "largest_output": self.largest,
            "largest_difference": self.largest_difference,
            "float32_rounding": self.largest_rounding,
            "attention_maps": [
                {"layer": i, "mean_distance": total / self.map_rows, "largest_distance": largest}
                for i, (total, largest) in enumerate(zip(self.map_sums, self.map_largest, strict=True))
            ],
        }

    def _add_losses(self, ids: Tensor, real: Tensor, before: Tensor, after: Tensor) -> None:
        known = real[:, 1:] & real[:, :-1]  # a token and the one it follows
        first, second = (logits[:, :-1][known].double().log_softmax(dim=-1) for logits in (before, after))
        place = ids[:, 1:][known][:, None]
        losses = (-x.gather(1, place).sum().item() for x in (first, second))
        self.losses.append((*losses, (first.exp() * (first - second)).sum().item()))  # type: ignore[arg-type]
        self.predicted += int(known.sum())

    def _add_maps(self, real: Tensor, before: tuple[Tensor, ...], after: tuple[Tensor, ...]) -> None:
        """Add up, by layer, how far the rows of attention maps are apart in 1-norm; 2 is the farthest."""
        self.map_sums = self.map_sums or [0.0] * len(before)
        self.map_largest = self.map_largest or [0.0] * len(before)
        for i, (first, second) in enumerate(zip(before, after, strict=True)):
            rows = (first.double() - second.double()).abs().sum(dim=-1).mT[real]  # (real tokens, heads)
            self.map_sums[i] += rows.sum().item()
            self.map_largest[i] = max(self.map_largest[i], rows.max().item())
        self.map_rows += int(real.sum()) * before[0].shape[1]


class _PartErrors:
    """Each part of the ticket on the inputs the original's part had: its own error, nothing handed on from before."""

    def __init__(self, original: Target, attached: Target) -> None:
        self._original = {f"{layer.name}.{part.name}": (layer, part) for layer, part in original.parts()}
        self._attached = {f"{layer.name}.{part.name}": (layer, part) for layer, part in attached.parts()}
        self._inputs: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self._outputs: dict[str, Tensor] = {}
        self._errors: dict[str, float] = {}
        self._norms: dict[str, float] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note what goes into the original's parts and what comes out, while the block runs it."""
        hooks = []
        for name, (layer, part) in self._original.items():
            hooks.append(self._note_input(layer.module(part.at), name))
            hooks.append(self._note_output(part.output(layer), name))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def add(self, real: Tensor) -> None:
        """Run the ticket's parts on what was noted."""
        for name, (args, kwargs) in self._inputs.items():
            layer, part = self._attached[name]
            mine = part.apply(layer, *args, **kwargs)
            x = args[0] if args else kwargs["hidden_states"]
            error = (mine[real].double() - self._outputs[name][real].double()).norm(dim=-1).max().item()
            self._errors[name] = max(self._errors.get(name, 0.0), error)
            self._norms[name] = max(self._norms.get(name, 0.0), x[real].norm(dim=-1).max().item())
        self._inputs.clear()
        self._outputs.clear()

    def summary(self, ticket: Ticket) -> list[dict[str, Json]]:
        """Set each part's largest error, over all tokens, beside what is certified of it."""
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

    def _note_input(self, module: nn.Module, name: str) -> Any:
        def note(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._inputs[name] = args, kwargs

        return module.register_forward_pre_hook(note, with_kwargs=True)

    def _note_output(self, module: nn.Module, name: str) -> Any:
        def note(_: nn.Module, __: tuple[Any, ...], output: Tensor) -> None:
            self._outputs[name] = output

        return module.register_forward_hook(note)


def _embeddings(hidden: Tensor, real: Tensor) -> Tensor:
    """Average over the tokens that are no padding, as sentence embeddings do."""
    weights = real[..., None].double()
    return (hidden.double() * weights).sum(dim=1) / weights.sum(dim=1)


def _check_finite(whose: str, output: Tensor) -> None:
    """Refuse outputs that no difference can be taken of; a maximum would pass over NaN in silence."""
    if not output.isfinite().all():
        raise StrongTicketError(
            f"the output of {whose} is not finite on these texts, so there is nothing to compare; "
            "look for NaN, infinity or huge numbers in the model's embeddings and norms."
        )


def _largest(x: Tensor) -> float:
    return float(x.abs().max())
