"""Run a module on generated inputs, to see what changes its outputs."""

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from strongticket.learn.groups import groups_of, places_of
from strongticket.learn.learner import evaluating
from strongticket.learn.roles import is_stack, output_axis
from strongticket.tickets.fused import Cut

# Calls a module and returns its outputs.
Run = Callable[[nn.Module], Any]

# A power of two, so that unaffected numbers keep every bit.
FACTOR = 4.0
# Of the largest output. A norm after a query adds a small number to its variance; nothing else changes valid outputs.
TOLERANCE = 1e-3
_ROWS, _LENGTH = 2, 8


@dataclass(frozen=True, slots=True)
class Scaled:
    """A parameter, or a part of one, times a factor."""

    parameter: str
    factor: float
    cut: Cut | None = None
    part: str = ""


class Probe:
    """A copy of a module with random weights of usual size, so that every part affects the outputs.

    Args:
        model: not changed.
        run: calls such a module.

    Raises:
        ValueError: this run shows nothing; the message says why.
    """

    def __init__(self, model: nn.Module, run: Run) -> None:
        try:
            self._model, self._run = copy.deepcopy(model).requires_grad_(False), run
            _draw(self._model)
            self._outputs = self._call()
        except Exception as error:  # the module's own code ran
            raise ValueError(f"it could not be run ({type(error).__name__})") from error
        if not any(output.numel() for output in self._outputs):
            raise ValueError("it returned no numbers")
        if not all(bool(output.isfinite().all()) for output in self._outputs):
            raise ValueError("its outputs were not finite")

    @torch.no_grad()
    def moved(self, scaled: Sequence[Scaled]) -> bool:
        """Whether the outputs change when parts of the module are multiplied."""
        before = {each.parameter: self._model.get_parameter(each.parameter).clone() for each in scaled}
        for each in scaled:
            parameter = self._model.get_parameter(each.parameter)
            if each.cut is None:
                parameter.mul_(each.factor)
            else:
                each.cut.put(parameter, each.part, each.factor * each.cut.of(parameter, each.part))
        try:
            outputs = self._call()
        finally:
            for name, value in before.items():
                self._model.get_parameter(name).copy_(value)
        return any(map(_differ, outputs, self._outputs))

    @torch.no_grad()
    def _call(self) -> list[Tensor]:
        device = next(self._model.parameters()).device
        with torch.random.fork_rng([device] if device.type == "cuda" else []), evaluating(self._model):
            return list(_tensors(self._run(self._model)))


def _differ(after: Tensor, before: Tensor) -> bool:
    if after.shape != before.shape:
        return True
    largest = before.abs().amax() if before.numel() else before.new_zeros(())
    return not bool(((after - before).abs() <= TOLERANCE * largest).all())  # NaN differs


def _tensors(output: Any) -> Iterator[Tensor]:
    """Yield the float tensors of an output, without a model's cache of keys."""
    if isinstance(output, Tensor):
        if output.is_floating_point():
            yield output.float()
    elif isinstance(output, Mapping):
        yield from (tensor for name, value in output.items() if name != "past_key_values" for tensor in _tensors(value))
    elif isinstance(output, tuple | list):
        yield from (tensor for value in output for tensor in _tensors(value))


def _draw(model: nn.Module) -> None:
    """Draw matrices that preserve the size of their inputs; set biases to 0 and scales to 1."""
    places = places_of(model)
    for name, group in groups_of(model).items():
        parameter, place = model.get_parameter(name).data, places[name][0]
        if parameter.dim() < 2 or group in ("norms", "biases"):
            parameter.fill_(float(group != "biases" and "bias" not in place.attribute))
            continue
        fan_in = 1 if group == "embeddings" else parameter.numel() // max(1, parameter.shape[output_axis(place.holder)])
        fan_in = parameter.shape[-1] if is_stack(place) else fan_in
        generator = torch.Generator(parameter.device).manual_seed(0)
        parameter.normal_(0, max(1, fan_in) ** -0.5, generator=generator)


def probe_of(model: nn.Module, inputs: Any = None) -> Probe | str:
    """Return a probe, with the given or with generated inputs, or else the reason why there is none."""
    if (inputs := own_inputs(model) if inputs is None else inputs) is None:
        return "its inputs are unknown; pass some"
    try:
        # A function is called instead.
        run: Run = inputs if callable(inputs) and not isinstance(inputs, Tensor) else partial(called, batch=inputs)
        return Probe(model, run)
    except ValueError as error:
        return str(error)


def called(model: nn.Module, batch: Any) -> Any:
    """Call a module with a batch: a mapping as keywords, a tuple or list as arguments."""
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple | list) else model(batch)


def own_inputs(model: nn.Module) -> dict[str, Tensor] | None:
    """Generate inputs for torch's own transformers and, from its configuration, for a Hugging Face model.

    Returns:
        Keyword arguments; None if the module's inputs are unknown, or it does not accept these.
    """
    generator = torch.Generator().manual_seed(0)
    if not (makers := _of_torch(model, generator) or _of_hugging_face(model, generator)):
        return None
    device = next((parameter.device for parameter in model.parameters()), None)
    taken = inspect.signature(model.forward).parameters
    try:
        inputs = {name: make().to(device) for name, make in makers.items() if name in taken}
        with torch.no_grad(), evaluating(model):
            model(**inputs)
    except Exception:  # the module's own code ran; after any error it cannot be run like this
        return None
    return inputs


Makers = dict[str, Callable[[], Tensor]]


def _of_torch(model: nn.Module, generator: torch.Generator) -> Makers:
    def vectors(width: int) -> Callable[[], Tensor]:
        # Equal batch size and length: either axis may come first.
        return lambda: torch.randn(_LENGTH, _LENGTH, width, generator=generator)

    if isinstance(model, nn.MultiheadAttention):
        return {"query": vectors(model.embed_dim), "key": vectors(model.kdim), "value": vectors(model.vdim)}
    kinds = (nn.Transformer, nn.TransformerEncoder, nn.TransformerDecoder)
    if isinstance(model, (*kinds, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
        inner = next((part for part in model.modules() if isinstance(part, nn.MultiheadAttention)), None)
        return dict.fromkeys(("src", "tgt", "memory"), vectors(inner.embed_dim)) if inner else {}
    return {}


def _of_hugging_face(model: nn.Module, generator: torch.Generator) -> Makers:
    config = getattr(model, "config", None)
    if not hasattr(model, "main_input_name") or config is None:
        return {}
    found = _Numbers(config)

    def tokens() -> Tensor:
        vocabulary = found("vocab_size")
        # The first few are padding and the like.
        return torch.randint(min(4, vocabulary - 1), vocabulary, (_ROWS, _LENGTH), generator=generator)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(_ROWS, *shape, generator=generator)

    def first() -> Tensor:
        return torch.eye(1, _LENGTH, dtype=torch.long).expand(_ROWS, -1)

    return {
        "input_ids": tokens,
        "decoder_input_ids": tokens,
        "pixel_values": lambda: numbers(found("num_channels"), *2 * [found("image_size")]),
        "input_features": lambda: numbers(found("num_mel_bins"), 2 * found("max_source_positions")),
        "global_attention_mask": first,
    }


class _Numbers:
    """Look up a number in a configuration, or in those it contains."""

    def __init__(self, config: Any) -> None:
        parts = [value for name, value in vars(config).items() if name.endswith(("_config", "coder"))]
        self._configs = [config, *parts]

    def __call__(self, name: str) -> int:
        numbers = [getattr(config, name, None) for config in self._configs]
        if (number := next((n for n in numbers if type(n) is int and n > 0), None)) is None:
            raise ValueError(f"its configuration has no {name}")
        return number
