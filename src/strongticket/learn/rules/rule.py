r"""What a rule is: how a search turns random weights, and what it learns of them, into those a network computes with.

Whatever a rule does meanwhile, what it finds has one meaning: every weight has a small code $q_i$, every tensor a table
of (coefficient, draw), and $w_i = c_{q_i} \cdot \text{draw}_{k_{q_i}}(\text{seed}, \text{name}, i)$.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any, ClassVar

from torch import Tensor

from strongticket.files import Json
from strongticket.learn.draw import weight_distribution
from strongticket.learn.policy import Policy
from strongticket.learn.rules import RULES
from strongticket.learn.tensors import HiddenTensor, ModelTensor
from strongticket.ops.rng import Distribution
from strongticket.ops.supermask.reference import straight_through as straight_through
from strongticket.tickets.codes import Frozen

Table = tuple[tuple[float, int], ...]  # (coefficient, draw) of each code
KEEP_OR_DROP: Table = ((0.0, 0), (1.0, 0))


class Rule(ABC):
    """How a search chooses: one object for all masked tensors of a module.

    A rule puts a module over each tensor, as a parametrization: its parameters are what is learned, and its `forward`
    turns the drawn weight into the one the network computes with, gradient included (`straight_through` helps). In
    evaluation mode that must be the weight its codes tell. A rule with settings is a dataclass.

    `name` is what it is asked for by; `state` names the parameters and buffers of its modules that a checkpoint keeps,
    from which `after_restore` can make the rest again.
    """

    name: ClassVar[str]
    state: ClassVar[tuple[str, ...]] = ("scores",)

    def source(self, tensor: ModelTensor, policy: Policy) -> tuple[Distribution, float]:
        """Say how a tensor's weights are drawn, and on what scale; by default as the policy says."""
        return weight_distribution(tensor, policy)

    @abstractmethod
    def begin(self, tensors: Sequence[HiddenTensor], policy: Policy) -> None:
        """Give each tensor its `module`; the weights are drawn already."""

    def before_step(self, tensors: Sequence[HiddenTensor], step: int) -> None:  # noqa: B027
        """Add to the gradients what does not come from the loss, a penalty for instance; the first step is 1."""

    def after_step(self, tensors: Sequence[HiddenTensor], step: int) -> None:  # noqa: B027
        """Bring up to date what follows from the optimizer's step; weights may be drawn again."""

    def after_restore(self, tensors: Sequence[HiddenTensor], step: int) -> None:  # noqa: B027
        """Make everything as it was after a step, from the `state` of that moment, which is in place."""

    def frozen_part(self, tensor: HiddenTensor) -> Frozen | None:  # noqa: B027
        """Give the map by which the codes of some weights were fixed before the search; a ticket need not hold them."""

    @abstractmethod
    def codes(self, tensor: HiddenTensor) -> tuple[Tensor, Table]:
        """Give what a ticket holds: the code of each weight, shaped like the tensor, and the table they refer to.

        Codes are whole numbers or bool; a table has up to 16, with coefficients that are 0 or of a size from 2^-24 to
        2^24, and draws of `HiddenTensor.draw`. In evaluation mode the network computes with draw * coefficient, one
        float32 product, and 0 where the coefficient is 0.
        """

    def settings(self) -> dict[str, Json]:
        """Give name and settings, by which a run of another rule is told."""
        chosen: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)} if is_dataclass(self) else {}
        return {"name": self.name, **chosen}


def as_rule(rule: Rule | str) -> Rule:
    """Give a rule of one's own for one search: by name, or a copy of the one given."""
    if isinstance(rule, Rule):
        return copy.copy(rule)
    if rule not in RULES:
        raise ValueError(f"rule must be one of {', '.join(RULES)}, or a Rule; got {rule!r:.40}.")
    home, _, name = RULES[rule].partition(":")
    made: Rule = getattr(import_module(home), name)()
    return made
