"""A module with masks in place, as a training loop and a ticket need it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from strongticket.errors import StrongTicketError
from strongticket.learn.draw import weight_distribution
from strongticket.learn.learner import Learner, evaluating
from strongticket.learn.policy import Policy
from strongticket.learn.rules.rule import Rule
from strongticket.learn.tensors import HiddenTensor
from strongticket.models.gpt2 import Group
from strongticket.notebook import ROWS, card, curves, table
from strongticket.tickets.codes import coded_mask, weights_under
from strongticket.tickets.mask import FullMask, Mask
from strongticket.tickets.restore import CONFIG, implied, settings_of, stored_buffers
from strongticket.tickets.tensors import SCALES, DenseTensor, RandomTensor, spread
from strongticket.tickets.ticket import Ticket


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The learned state at one step of a search."""

    step: int
    loss: float  # on validation data
    values: Mapping[str, Tensor] = field(repr=False)  # as returned by `Hidden.state`


class UnwritableError(StrongTicketError):
    """A rule's result does not fit the ticket format."""


class Hidden(Learner):
    """A module whose weights are masked, frozen or trained as a policy says; `hide` makes it.

    `model` is the module; `supermasks` maps each masked tensor's name to the module that the rule put over it. In your
    own training loop, call `before_step()` and `after_step()` around each optimizer step, and `after_restore()` after
    restoring values by other means than `load_state`. `search` returns it in its best state; `best` and `final` hold
    the best and the last state, if it validated. `curves` has (step, loss) for "training" and "validation".
    """

    def __init__(
        self,
        model: nn.Module,
        policy: Policy,
        rule: Rule,
        *,
        seed: int,
        tensors: Sequence[HiddenTensor],
        buffers: Mapping[str, Tensor],
        architecture: Mapping[str, object],
    ) -> None:
        self.model, self.policy, self.rule, self.seed = model, policy, rule, seed
        self.tensors = tuple(tensors)
        self.architecture = architecture
        self.steps = 0  # done so far
        self.best: Snapshot | None = None
        self.final: Snapshot | None = None
        self.curves: dict[str, list[tuple[int, float]]] = {}
        self._first_buffers = buffers
        self._masked = [hidden for hidden in self.tensors if hidden.treatment == "masked"]

    @property
    def supermasks(self) -> dict[str, Any]:
        """The module that the rule put over each masked tensor, by name."""
        return {hidden.name: hidden.module for hidden in self._masked}

    def before_step(self) -> None:
        """Let the rule add gradients that do not come from the loss."""
        self.rule.before_step(self._masked, self.steps + 1)

    def after_step(self) -> None:
        """Update everything derived from the parameters, after an optimizer step."""
        self.steps += 1
        self.rule.after_step(self._masked, self.steps)

    def after_restore(self, step: int | None = None) -> None:
        """Update everything derived from restored parameters, which belong to `step`, by default the current one."""
        self.steps = self.steps if step is None else step
        self.rule.after_restore(self._masked, self.steps)

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        """Return what an optimizer updates, by name: the rule's parameters and the trained tensors."""
        learned = [(f"{h.name}.{name}", p) for h in self._masked for name, p in h.module.named_parameters()]
        learned += [(h.name + SCALES, h.scales) for h in self._masked if h.scales is not None]
        trained = dict.fromkeys(h.tensor.parameter for h in self.tensors if h.treatment == "trained")
        return learned + [(name, self.model.get_parameter(name)) for name in trained]

    def state(self) -> dict[str, Tensor]:
        """Return all that steps change: the learned values, the rule's other state, and the module's buffers."""
        state = super().state()
        for hidden in self._masked:
            there = hidden.module.state_dict()
            state |= {f"{hidden.name}.{name}": there[name] for name in self.rule.state}
        return state | self._buffers()

    def measured(self) -> list[Tensor]:
        """Return the module's own buffers of real numbers."""
        return [buffer for buffer in self._buffers().values() if buffer.is_floating_point()]

    def _buffers(self) -> dict[str, Tensor]:
        return {name: self.model.get_buffer(name) for name in self._first_buffers}

    def restore(self, moment: Snapshot) -> None:
        """Restore a snapshot of the search, for instance `final`."""
        self.load_state(moment.values, moment.step)

    def __repr__(self) -> str:
        kept = ", ".join(f"{group} {density:.3f}" for group, density in self.densities().items())
        return f"Hidden({self._kind()}, {self.rule.name}, seed={self.seed}, density: {kept or 'none'}; {self._done()})"

    def _repr_html_(self) -> str:
        numbers = sum(hidden.tensor.numel for hidden in self.tensors)
        facts = {
            "masked": f"{len(self._masked)} of {len(self.tensors)} tensors",
            "nonzero": f"{self.nonzero()['all']:,} of {numbers:,} numbers",
            "rule": self.rule.name,
            "seed": str(self.seed),
            "search": self._done(),
        }
        rows = []
        for hidden in self.tensors[:ROWS]:
            masked = hidden.treatment == "masked"
            kept = f"{self._nonzero(hidden) / max(1, hidden.tensor.numel):.4f}" if masked else ""
            shape = " x ".join(map(str, hidden.shape))
            rows.append((hidden.name, hidden.tensor.group, hidden.treatment, shape, kept))
        columns = ("tensor", "group", "treatment", "shape", "density")
        listed = table(columns, rows, more=len(self.tensors) - len(rows))
        losses = curves({f"{name} loss": points for name, points in self.curves.items()}, "steps")
        return card(f"Hidden: {self._kind()}", facts, losses, listed)

    def _kind(self) -> str:
        # Not the module's present class: torch changes it for parametrizations.
        return str(self.architecture.get("class", type(self.model).__name__)).rpartition(".")[2]

    def _done(self) -> str:
        if self.best is not None:
            return f"best validation loss {self.best.loss:.4g} at step {self.best.step:,}"
        return f"{self.steps:,} steps"

    def counts(self) -> dict[Group, int]:
        """Count the nonzero parameters of each group: those kept by masks, and all others not frozen at 0."""
        counts: dict[Group, int] = defaultdict(int)
        for hidden in self.tensors:
            counts[hidden.tensor.group] += self._nonzero(hidden)
            counts[hidden.tensor.group] += 0 if hidden.scales is None else hidden.scales.numel()
        return dict(counts)

    def densities(self) -> dict[Group, float]:
        """Return the fraction kept of the masked tensors of each group."""
        kept, numel = defaultdict[Group, int](int), defaultdict[Group, int](int)
        for hidden in self.tensors:
            if hidden.treatment == "masked":
                kept[hidden.tensor.group] += self._nonzero(hidden)
                numel[hidden.tensor.group] += hidden.tensor.numel
        return {group: kept[group] / numel[group] for group in numel if numel[group]}

    def describe(self) -> list[dict[str, object]]:
        """Describe each tensor: its group, role and treatment, and how it was drawn (`init`)."""
        return [
            {
                "name": hidden.name,
                "group": hidden.tensor.group,
                "role": hidden.tensor.role,
                "treatment": hidden.treatment,
                "shape": list(hidden.shape),
                "distribution": hidden.distribution or ("as given" if hidden.scale is None else "constant"),
                "scale": hidden.scale,
                "init": self._init(hidden),
                **({"note": hidden.tensor.note} if hidden.tensor.note else {}),
                # Only if there are any: this description distinguishes searches.
                **({} if hidden.scales is None else {"learned_scales": list(hidden.scales.shape)}),
            }
            for hidden in self.tensors
        ]

    def _init(self, hidden: HiddenTensor) -> str | None:
        """Say how a tensor was drawn: by the policy's init, or by the rule itself."""
        drawn = (hidden.distribution, hidden.scale)
        if hidden.distribution is None:
            return None
        by_policy = drawn == weight_distribution(hidden.tensor, self.policy)
        rescaled = self.policy.rescale and hidden.treatment == "masked"
        return f"{self.policy.init}{', rescaled' * rescaled}" if by_policy else f"of the rule {self.rule.name}"

    def to_ticket(self, metadata: Mapping[str, object] | None = None) -> Ticket:
        """Make a ticket of the current masks: seed and bits for random tensors, numbers for all others.

        A Hugging Face configuration is stored in its metadata, for `load_pretrained`.

        Raises:
            StrongTicketError: the module computes with other weights than the ticket would restore.
        """
        with evaluating(self.model):
            random = [self._random_tensor(hidden) for hidden in self.tensors if hidden.distribution]
            buffers = [DenseTensor(name=name, value=value) for name, value in stored_buffers(self.model)]
            config = settings_of(getattr(self.model, "config", None))
            return Ticket(
                seed=self.seed,
                tensors=random,
                dense=[*self._dense_tensors(), *buffers, *self._dense_scales()],
                architecture={
                    **self.architecture,
                    **({"measured": measured} if (measured := self._measured()) else {}),
                },
                metadata={**({} if config is None else {CONFIG: config}), **(metadata or {})},
            )

    def check_weights(self) -> None:
        """Refuse weights that are not finite: the likeliest cause of a loss that is not."""
        for hidden in self._masked:
            for value in hidden.values(self.model):
                check_finite(self.rule, hidden, value)

    def _random_tensor(self, hidden: HiddenTensor) -> RandomTensor:
        assert hidden.distribution is not None
        assert hidden.scale is not None
        mask = self._mask(hidden) if hidden.treatment == "masked" else FullMask(hidden.shape)
        weight = weights_under(mask, hidden.draw)
        self._refuse_unlike(hidden, weight if hidden.scales is None else weight * spread(hidden.scales, weight.shape))
        return RandomTensor(name=hidden.name, mask=mask, distribution=hidden.distribution, scale=hidden.scale)

    def _mask(self, hidden: HiddenTensor) -> Mask:
        try:
            return coded_mask(*self.rule.codes(hidden), frozen=self.rule.frozen_part(hidden))
        except ValueError as error:
            reason = f"the rule {self.rule.name} found for {hidden.name} what no ticket holds: {error}"
            raise UnwritableError(reason) from error

    def _refuse_unlike(self, hidden: HiddenTensor, rebuilt: Tensor) -> None:
        """Refuse a ticket that would not restore, bit for bit, the weights that were evaluated."""
        for value in hidden.values(self.model):
            check_finite(self.rule, hidden, value)
            # In the wider type, so that a cast weight does not pass for the original.
            wide = torch.promote_types(value.dtype, rebuilt.dtype)
            if value.shape != rebuilt.shape or not torch.equal(value.to(wide), rebuilt.to(value.device, wide)):
                how = f"masked by the rule {self.rule.name}" if hidden.treatment == "masked" else hidden.treatment
                raise StrongTicketError(
                    f"{hidden.name}, {how}, computes with other weights than its ticket would restore: after hide() it "
                    "was overwritten, cast or given another parametrization. Hide a fresh module."
                )

    def _dense_tensors(self) -> list[DenseTensor]:
        dense = []
        for hidden in self.tensors:
            if hidden.distribution:
                continue
            value = next(hidden.values(self.model))
            if hidden.scale is not None:
                self._refuse_unlike(hidden, torch.full_like(value, hidden.scale))
                if hidden.scale == implied(self.model, hidden.name):
                    continue
            dense.append(DenseTensor(name=hidden.name, value=value, trained=hidden.treatment == "trained"))
        return dense

    def _dense_scales(self) -> list[DenseTensor]:
        scales = ((hidden.name + SCALES, hidden.scales) for hidden in self._masked)
        return [DenseTensor(name=name, value=value, trained=True) for name, value in scales if value is not None]

    def _measured(self) -> list[str]:
        """Return the names of the buffers that data changed, such as running means: measured, not learned."""
        first = self._first_buffers
        return [name for name, now in stored_buffers(self.model) if not torch.equal(now.cpu(), first[name])]

    def _nonzero(self, hidden: HiddenTensor) -> int:
        if hidden.treatment == "masked":
            codes, table = self.rule.codes(hidden)
            zeros = sum(int((codes == code).sum()) for code, (coefficient, _) in enumerate(table) if coefficient == 0)
            return codes.numel() - zeros
        at_zero = hidden.distribution is None and hidden.scale == 0
        return 0 if at_zero else hidden.tensor.numel


def check_finite(rule: Rule, hidden: HiddenTensor, value: Tensor) -> None:
    """Refuse weights that are not finite."""
    if wrong := int((~value.isfinite()).sum()):
        raise StrongTicketError(f"{wrong:,} weights of {hidden.name} are not finite under the rule {rule.name}.")
