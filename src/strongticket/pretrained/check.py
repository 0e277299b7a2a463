"""Run a ticket in its model on random inputs before returning it: the parts must explain every difference.

A family is a description written by a person; only the model can show whether it is true. So both are run.
"""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from strongticket.errors import StrongTicketError, first_line
from strongticket.parallel import one_thread
from strongticket.pretrained.layer import Layer
from strongticket.pretrained.parts import Input, Part
from strongticket.pretrained.target import Target
from strongticket.pretrained.torch_modules import mirror
from strongticket.tickets.ticket import Ticket

# Two computations of the same value may differ by this fraction of the largest number: softmax runs in float32.
_ROUNDING = 1e-3
_SEQUENCES, _TOKENS = 2, 7

Inputs = Mapping[str, Any]


class Hooks(ExitStack):
    """Functions that a model's modules call while the `with` block runs it."""

    def reading(self, module: nn.Module, note: Callable[[tuple[Any, ...], dict[str, Any]], None]) -> None:
        """Call a function with the arguments of a module."""
        hook = module.register_forward_pre_hook(lambda _, args, kwargs: note(args, kwargs), with_kwargs=True)
        self.callback(hook.remove)

    def making(self, module: nn.Module, put: Callable[[Tensor], Tensor | None]) -> None:
        """Call a function with the output of a module; what it returns takes the output's place."""
        self.callback(module.register_forward_hook(lambda _, __, output: put(output)).remove)


class Notes:
    """The inputs and outputs of a model's parts, recorded while it runs."""

    def __init__(self, target: Target) -> None:
        self.parts = target.parts
        self.calls: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}  # of the module that takes the part's inputs
        self.outputs: dict[str, Tensor] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record while the `with` block runs the model."""
        with Hooks() as hooks:
            for name, (layer, part) in self.parts.items():
                hooks.reading(layer.module(part.at), partial(self._took, name))
                hooks.making(part.output(layer), partial(self.outputs.__setitem__, name))
            yield

    def _took(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.calls[name] = args, kwargs


@torch.no_grad()
def check_ticket_in_model(
    target: Target, ticket: Ticket, inputs: Inputs | None = None, device: torch.device | str | None = None
) -> None:
    """Refuse a ticket that changes its model's outputs by more than the errors of its parts explain.

    Args:
        target: what the ticket was made from.
        ticket: as it would be returned.
        inputs: inputs of the model's backbone; by default random ones.
        device: where both are run; by default the model's device.
    """
    assert ticket.certificate is not None
    plain = _plain(target.model).to(device)
    before, same, after = (Target(model, target.what, target.asked) for model in (plain, mirror(plain), mirror(plain)))
    batch = random_inputs(before) if inputs is None else _moved(inputs, next(before.backbone.parameters()).device)
    notes, read = Notes(before), _Read(before)
    with notes.watching(), read.watching():
        expected = _tensors(before.backbone(**batch))
    read.check()
    _check_bounds(before, batch)
    certified = {part["part"]: part for part in ticket.certificate.details["parts"]}
    for name in after.parts:
        said, longest = certified[name], read.longest[name]
        if not longest <= said["input_norm"] * (1 + _ROUNDING):
            _refuse(name, f"is certified for inputs of norm {said['input_norm']:.3g} but gets one of {longest:.3g}")
        # With few items a certificate allows nearly anything, so the part's own numbers must fit the form of a ticket.
        error, size = _error(name, before, same, notes, None)
        if not error <= _ROUNDING * size:
            _refuse(name, f"has error {error:.3g} on outputs of norm {size:.3g} with the model's own numbers")
        error, size = _error(name, before, after, notes, ticket)
        if not error <= said["error"] + _ROUNDING * size:
            _refuse(name, f"has error {error:.3g} on outputs of norm {size:.3g}, but {said['error']:.3g} is certified")
    with Hooks() as hooks:
        for name, (layer, part) in after.parts.items():
            hooks.making(part.output(layer), partial(_instead, notes.outputs[name]))
        found = _tensors(after.backbone(**batch))
    for theirs, mine in zip(expected, found, strict=True):
        if theirs.is_floating_point() and not _close(mine, theirs):
            raise StrongTicketError(
                f"with the original's outputs after every part, this {target.model_type} still does not reproduce the "
                "original: the ticket changed something outside its parts."
            )


def _error(name: str, before: Target, after: Target, notes: Notes, ticket: Ticket | None) -> tuple[float, float]:
    """Put a ticket, or the model's own numbers, in place of a part; return the largest error and output, as norms."""
    (own, part), (layer, _) = before.parts[name], after.parts[name]
    try:
        # Only a ticket's own items and seed matter: they are those of its matrices.
        pieces = after.pieces_of(name, *(ticket.architecture["items"], ticket.seed) if ticket else (1, 0))
        with one_thread(), _in_double(own, part), _in_double(layer, part):
            part.put(layer, pieces, ticket, "merged")
            args, kwargs = _double(notes.calls[name])
            theirs, mine = part.apply(own, *args, **kwargs), part.apply(layer, *args, **kwargs)
    except RuntimeError as problem:
        _refuse(name, f"cannot be run with its ticket ({first_line(problem)})")
    _forget(layer, part)
    error, size = (x.norm(dim=-1).max().item() for x in (mine - theirs, theirs))
    return error, size


class _Read:
    """What the linear maps of a model read, and the outputs that their parts name as the source."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._read: dict[str, Tensor] = {}
        self._made: dict[str, Tensor] = {}
        self.longest: dict[str, float] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record while the `with` block runs the model."""
        with Hooks() as hooks:
            for layer, part in self._target.parts.values():
                for place, input in part.reads(layer).items():
                    hooks.reading(_at(layer, place), partial(_note, self._read, place))
                    if at := input.made_at(layer):
                        hooks.making(_at(layer, at), partial(self._made.__setitem__, at))
            yield

    def check(self) -> None:
        """Refuse a part that does not read what its family says it reads."""
        for name, (layer, part) in self._target.parts.items():
            for place, input in part.reads(layer).items():
                if place not in self._read:
                    _refuse(name, f"has a map at {place} that the model does not call")
                x = self._read[place].flatten(0, -2)
                self.longest[name] = max(self.longest.get(name, 0.0), x.norm(dim=-1).max().item())
                at = input.made_at(layer)
                if at and (at not in self._made or not torch.equal(self._made[at].flatten(0, -2), x)):
                    _refuse(name, f"does not read the output of the norm at {at}")


def _check_bounds(target: Target, batch: Inputs) -> None:
    """Refuse a part whose inputs do not come from the maps that bound them, with drawn numbers as these maps' outputs.

    Kinds of parts are checked one at a time: if two maps gave the same, one could be mistaken for the other.
    """
    kinds: dict[str, list[tuple[str, Layer, str, Input]]] = {}
    for name, (layer, part) in target.parts.items():
        for place, input in part.reads(layer).items():
            if input.made_from(layer):
                kinds.setdefault(part.name, []).append((name, layer, place, input))
    for claims in kinds.values():
        generator = torch.Generator("cpu").manual_seed(0)
        drawn: dict[str, Tensor] = {}
        read: dict[str, Tensor] = {}
        with Hooks() as hooks:
            for _, layer, place, input in claims:
                for source, rows in input.made_from(layer).items():
                    draw = partial(input.drawn, layer, generator=generator)
                    hooks.making(_at(layer, source), partial(_draw, drawn, source, rows, draw))
                hooks.reading(_at(layer, place), partial(_note, read, place))
            target.backbone(**batch)
        for name, layer, place, input in claims:
            sources = [*input.made_from(layer)]
            made = [drawn[source].flatten(0, -2) for source in sources if source in drawn]
            x = read[place].cpu().flatten(0, -2).abs()
            most = input.at_most(layer, *made) * (1 + _ROUNDING) if len(made) == len(sources) else x.new_empty(0, 0)
            if x.shape[-1] != most.shape[-1] or len(most) not in (1, len(x)) or not (x <= most).all():
                _refuse(name, f"does not read the output of {' and '.join(sources)}, from which its bound is computed")


def _draw(
    drawn: dict[str, Tensor], source: str, rows: Tensor, draw: Callable[[tuple[int, ...]], Tensor], output: Tensor
) -> Tensor:
    drawn[source] = draw((*output.shape[:-1], len(rows)))
    return output.index_copy(-1, rows.to(output.device), drawn[source].to(output))


def _moved(inputs: Inputs, device: torch.device) -> dict[str, Any]:
    return {name: x.to(device) if isinstance(x, Tensor) else x for name, x in inputs.items()}


def _instead(given: Tensor, output: Tensor) -> Tensor:
    return given


def _note(read: dict[str, Tensor], place: str, args: tuple[Tensor, ...], _: object) -> None:
    read[place] = args[0]


def _refuse(name: str, why: str) -> NoReturn:
    raise StrongTicketError(
        f"{name} {why}. Its family does not describe this model, so no ticket is made; "
        "docs/adding-a-model.md shows how to correct it."
    )


def _at(layer: Layer, place: str) -> nn.Module:
    return layer.module(f"/{place}")


def _plain(model: nn.Module) -> nn.Module:
    """Return a copy to run, in float32 if the model has lower precision."""
    copy = mirror(model).eval()
    return copy.float() if any(p.dtype in (torch.float16, torch.bfloat16) for p in model.parameters()) else copy


@contextmanager
def _in_double(layer: Layer, part: Part) -> Iterator[None]:
    """Compute a part in float64 within the `with` block; after it, the model's parameters share memory as before."""

    def cast(dtype: torch.dtype) -> list[nn.Parameter]:
        modules = layer.module(part.at), part.output(layer)
        return [parameter for module in modules for parameter in module.to(dtype).parameters()]

    dtype = next(part.output(layer).parameters()).dtype
    held = [(parameter, parameter.data) for parameter in cast(dtype)]
    cast(torch.float64)
    yield
    cast(dtype)
    for parameter, data in held:
        parameter.data = data


def _forget(layer: Layer, part: Part) -> None:
    """Free the numbers of a part that was tried: in what follows, its outputs are replaced."""
    for module in (layer.module(part.at), part.output(layer)):
        for parameter in module.parameters():
            parameter.data = parameter.new_zeros(()).expand(parameter.shape)


def _double(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, tuple | list):
        return type(value)(_double(each) for each in value)
    return {key: _double(each) for key, each in value.items()} if isinstance(value, dict) else value


def _tensors(output: Any) -> list[Tensor]:
    """Return a model's outputs, except attention maps: they are no part's output, so no certificate bounds them."""
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, Mapping):
        output = [value for name, value in output.items() if not name.endswith("attentions")]
    each = output if isinstance(output, tuple | list) else ()
    return [tensor for value in each for tensor in _tensors(value)]


def _close(x: Tensor, y: Tensor) -> bool:
    return bool((x - y).abs().max() <= 1e-4 * y.abs().max().clamp(min=1.0)) if x.numel() else True


def random_inputs(target: Target) -> dict[str, Any]:
    """Make inputs for a model's backbone: tokens, images, sounds or vectors, as it requires."""
    return inputs_for(target.backbone, target.config, target.most_tokens())


def inputs_for(backbone: nn.Module, config: Any, most_tokens: int | None = None) -> dict[str, Any]:
    """Make random inputs from a backbone and its configuration alone."""
    length = min(_TOKENS, most_tokens or _TOKENS)
    vision = getattr(config, "vision_config", config)
    shapes: dict[str, Callable[[], tuple[int, ...]]] = {
        "pixel_values": lambda: (_SEQUENCES, vision.num_channels, *_image_size(vision.image_size)),
        "input_features": lambda: (_SEQUENCES, config.num_mel_bins, 2 * config.max_source_positions),
    }
    if isinstance(config, SimpleNamespace):  # of torch.nn
        names = ("src", "tgt", "memory", "query", "key", "value")
        shapes = dict.fromkeys(names, lambda: (length, _SEQUENCES, config.hidden_size))
    generator, made = torch.Generator("cpu").manual_seed(0), {}
    asked = inspect.signature(backbone.forward).parameters
    for name in asked:
        if name == "input_ids" or (name == "decoder_input_ids" and config.is_encoder_decoder):
            vocabulary = config.get_text_config().vocab_size
            made[name] = torch.randint(vocabulary, (_SEQUENCES, length), generator=generator, device="cpu")
        elif name in shapes:
            numbers = torch.randn(*shapes[name](), generator=generator, device="cpu")
            # Vectors with the largest norm that `Given` allows.
            made[name] = nn.functional.normalize(numbers, dim=-1) * math.sqrt(numbers.shape[-1])
    if not made:
        raise StrongTicketError(
            f"cannot make inputs for a {config.model_type} to test the ticket on; pass some as inputs={{...}}."
        )
    device = next(backbone.parameters()).device
    switches = dict.fromkeys({"use_cache", "need_weights"} & asked.keys(), False)
    return {name: tensor.to(device) for name, tensor in made.items()} | switches


def _image_size(size: Any) -> tuple[int, int]:
    height, width = (size, size) if isinstance(size, int) else size
    return height, width
