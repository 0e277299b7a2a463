r"""A rule: how a search turns random weights and learned parameters into the weights a network computes with.

The result of every rule has the same form: every weight has a small code $q_i$, every tensor a table of (coefficient,
draw), and $w_i = c_{q_i} \cdot \text{draw}_{k_{q_i}}(\text{seed}, \text{name}, i)$.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import import_module
from types import UnionType
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin

from torch import Tensor, nn

from strongticket.learn.draw import draw_scores, weight_distribution
from strongticket.learn.policy import Policy
from strongticket.learn.rules import DEFAULT_RULE, RULES, name_of_rule
from strongticket.learn.tensors import HiddenTensor, ModelTensor
from strongticket.ops.rng import Distribution
from strongticket.ops.supermask import scored_weight as scored_weight
from strongticket.ops.supermask.reference import straight_through as straight_through
from strongticket.tickets.codes import Frozen
from strongticket.tickets.table import KEEP_OR_DROP as KEEP_OR_DROP
from strongticket.tickets.table import MAX_CODES as MAX_CODES
from strongticket.tickets.table import Table as Table

T = TypeVar("T")

_WORDS = {"true": True, "false": False, "none": None}
_KINDS = {int: "a whole number", float: "a number", bool: "true or false", type(None): "none"}


def within(default: T, least: float, most: float = math.inf) -> T:
    """Declare a rule's setting with a range, both ends included."""
    return field(default=default, metadata={"least": least, "most": most})


@dataclass
class Rule(ABC):
    """How a search chooses: one object for all masked tensors of a module.

    A rule puts a module over each tensor, as a parametrization: the module's parameters are learned, and its `forward`
    turns the drawn weight into the one the network computes with, gradient included (`scored_weight` and
    `straight_through` help). In
    evaluation mode that must be the weight given by `codes`. A rule with settings is a dataclass; their types and
    ranges (`within`) are checked. Each tensor's `density` says how much to keep.

    `name` selects the rule; `version` counts the code changes that changed its results, so that rows from before and
    after are never mixed; `state` names the parameters and buffers of its modules that a checkpoint keeps, from which
    `after_restore` rebuilds the rest; `ignored` names settings of a policy that it does not use and therefore refuses;
    `default_lr` is the highest learning rate of a `search` that is given none.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    state: ClassVar[tuple[str, ...]] = ("scores",)
    ignored: ClassVar[tuple[str, ...]] = ()
    default_lr: ClassVar[float] = 1e-3

    def __post_init__(self) -> None:
        for own in fields(self):
            _check_setting(self.name, own.name, getattr(self, own.name), own.type, own.metadata)

    def check(self, densities: Mapping[str, float], policy: Policy) -> None:
        """Refuse, before anything is changed, what it cannot do, given the density of each masked tensor."""
        self.refuse(self.ignored, policy)

    def refuse(self, settings: Sequence[str], policy: Policy) -> None:
        """Refuse settings of a policy that would change nothing."""
        for own in fields(policy):
            if own.name in settings and getattr(policy, own.name) != own.default:
                raise ValueError(f"the rule {self.name} does not use {own.name}; leave it at {own.default!r}.")

    def remark(self, steps: int) -> str | None:  # noqa: B027
        """Return what is wrong with its settings in a search of this many steps, if anything."""

    def source(self, tensor: ModelTensor, policy: Policy) -> tuple[Distribution, float]:
        """Return the distribution and scale of a tensor's weights; by default the policy's."""
        return weight_distribution(tensor, policy)

    def begin(self, tensors: Sequence[HiddenTensor], policy: Policy) -> None:
        """Set each tensor's `module`; the weights are already drawn. `after_restore` follows, for step 0."""
        self.policy = policy
        for tensor in tensors:
            scores = draw_scores(tensor.tensor, policy, tensor.seed, tensor.parameter.device)
            tensor.module = self.over(tensor, scores)

    @abstractmethod
    def over(self, tensor: HiddenTensor, scores: Tensor) -> nn.Module:
        """Make the module to put over a tensor, from its first scores."""

    def before_step(self, tensors: Sequence[HiddenTensor], step: int) -> None:  # noqa: B027
        """Add gradients that do not come from the loss, such as a penalty's; the first step is 1."""

    def after_step(self, tensors: Sequence[HiddenTensor], step: int) -> None:
        """Update everything derived from the parameters, after an optimizer step; weights may be redrawn."""
        self.after_restore(tensors, step)

    def after_restore(self, tensors: Sequence[HiddenTensor], step: int) -> None:  # noqa: B027
        """Rebuild everything as it was after a step, from the `state` of that step, which is already restored."""

    def frozen_part(self, tensor: HiddenTensor) -> Frozen | None:  # noqa: B027
        """Return the map that fixed some weights' codes before the search; a ticket need not hold them."""

    @abstractmethod
    def codes(self, tensor: HiddenTensor) -> tuple[Tensor, Table]:
        """Return what a ticket holds: the code of each weight, shaped like the tensor, and the table of the codes.

        Codes are whole numbers or bool; a table has up to 16 entries, with coefficients that are 0 or of magnitude
        2^-24 to 2^24, and numbers for `HiddenTensor.draw`. In evaluation mode the network computes with
        draw * coefficient, one float32 product, and 0 where the coefficient is 0.
        """

    def settings(self) -> dict[str, object]:
        """Return name and settings, so that a run with another rule is recognized."""
        return {"name": self.name, **{own.name: getattr(self, own.name) for own in fields(self)}}


def with_gradients(tensors: Sequence[HiddenTensor]) -> list[Any]:
    """Return the modules whose scores have gradients; those of an unused layer have none."""
    return [tensor.module for tensor in tensors if tensor.module.scores.grad is not None]


def as_rule(rule: Rule | str) -> Rule:
    """Return a rule for one search: a copy of the given one, or the one called NAME or NAME:SETTING=X,...

    Example:
        >>> as_rule("edge-popup").settings()
        {'name': 'edge-popup'}
    """
    if isinstance(rule, Rule):
        return copy.copy(rule)
    if not isinstance(rule, str):
        raise ValueError(f"rule must be a name such as {DEFAULT_RULE}, or a Rule object; got {rule!r:.60}.")
    name = name_of_rule(rule)
    home, _, kind = RULES[name][0].partition(":")
    made: type[Rule] = getattr(import_module(f"{__package__}.{home}"), kind)
    return made(**_settings(made, rule.partition(":")[2]))


def _settings(kind: type[Rule], text: str) -> dict[str, Any]:
    known = [own.name for own in fields(kind)]
    found: dict[str, Any] = {}
    for part in text.split(",") if text else ():
        name, equals, value = (word.strip() for word in part.partition("="))
        if name not in known or not equals or name in found:
            has = f"has the settings {', '.join(known)}, each written once as in NAME:SETTING=X"
            raise ValueError(f"the rule {kind.name} {has if known else 'has no settings'}; got {part!r:.40}.")
        found[name] = _WORDS[value] if value in _WORDS else _number_or_text(value)
    return found


def _number_or_text(text: str) -> float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _check_setting(rule: str, name: str, value: object, kind: Any, limits: Mapping[str, float]) -> None:
    least, most = limits.get("least", -math.inf), limits.get("most", math.inf)
    if _is_of(value, kind) and (not isinstance(value, int | float) or least <= value <= most):
        return
    where = f" in {least:g} .. {most:g}" if most < math.inf else f" of at least {least:g}" if least > -math.inf else ""
    raise ValueError(f"{name} of the rule {rule} must be {_in_words(kind)}{where}; got {value!r:.40}.")


def _is_of(value: object, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if isinstance(kind, UnionType):
        return any(_is_of(value, part) for part in get_args(kind))
    # A bool is not a number here, and NaN is in no range.
    return type(value) is kind or (kind is float and type(value) is int)


def _in_words(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(map(str, get_args(kind)))
    if isinstance(kind, UnionType):
        return " or ".join(map(_in_words, get_args(kind)))
    return _KINDS[kind]
