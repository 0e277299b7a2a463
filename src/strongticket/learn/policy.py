"""How a search treats each group of tensors, and how it draws the random ones."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from strongticket.checks import Scope, check_density
from strongticket.learn.rules import DEFAULT_RULE, name_of_rule
from strongticket.models.gpt2_sizes import Group
from strongticket.notebook import card, table
from strongticket.settings import setting

Treatment = Literal["masked", "frozen", "trained"]
Constant = Literal["frozen", "trained"]
Init = Literal["own", "normal", "uniform", "xavier", "kaiming", "sign", "packed-sign", "kaiming-normal", "kaiming-sign"]
Scales = Literal["none", "tensor", "head", "block", "output"]
ScoreInit = Literal["kaiming", "uniform", "normal", "constant"]
Shares = Literal["uniform", "erk"]

GROUPS: tuple[Group, ...] = get_args(Group)
# Norms start at 1 and biases at 0: equal numbers leave nothing to choose.
CONSTANT_GROUPS: tuple[Group, ...] = ("norms", "biases")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    r"""Which tensors are masked, frozen or trained, and how the masked and frozen ones are drawn.

    A masked tensor is random, and which of its weights to keep is learned; a frozen one is random, or constant if it
    is a norm (1) or a bias (0), and keeps all; a trained one starts with the module's values and learns as usual.

    Args:
        attention: weights of queries, keys, values and outputs.
        mlp: every matrix that belongs to no other group, convolutions included.
        embeddings: of tokens, positions and classes, and any head tied to one of them.
        head: a module called a head, or the final linear layer.
        norms: scales and shifts of the norms; never masked.
        biases: of the linear layers; never masked.
        density: fraction kept, in (0, 1].
        scope: rank scores within each tensor ("tensor"), or all together ("global").
        signed: rank scores by value, not by absolute value.
        qk_scale: multiplies the weights drawn for queries and keys; "auto" is $n_K^{1/4}$, $n_K$ the width of a head.
        factors: constant factors on the weights drawn, by name, such as `{"positions.weight": 0.1}`; the first match
            counts.
        init: "own" draws normal weights with the tensor's own standard deviation; "normal", "uniform" and "sign" keep
            that deviation; "packed-sign" is "sign" from packed random bits, so that a network can run from its mask
            alone (`build(run="bits", resident="mask")`); "xavier" and "kaiming" are uniform, with a width that follows
            from the shape; "kaiming-normal" and "kaiming-sign" have the deviation of "kaiming",
            $\sqrt{2 / \text{fan-in}}$, which suits ReLU.
        rescale: multiply masked weights by $1 / \sqrt{\text{density}}$, so that the masked tensor keeps its variance.
        score_init: "kaiming" is uniform on $\pm 1 / \sqrt{\text{fan-in}}$, as published with edge-popup; "normal" and
            "constant" have its deviation and its width, "uniform" is $\pm 1$ for every tensor.
        output_gain: a constant factor on the last norm's output.
        scales: factors of either sign on the masked weights, learned with the masks: one per "tensor", per attention
            "head" (elsewhere as "tensor"), per "block" of at most 64 by 64 weights, or per "output". A ticket is
            then strong up to these scales.
        rule: how the choice of weights is learned, NAME or NAME:SETTING=X,... such as "iterand:every=100,rate=0.2".
        densities: "uniform" keeps `density` of every tensor; "erk" keeps more of small tensors than of large ones, and
            `density` overall; a mapping such as `{"*.conv.weight": 0.1}` sets densities by name, the first match
            wins.
        density_start: the density at the start of a ramp.
        density_steps: steps of that linear ramp; 0 keeps the density constant.

    Example:
        >>> Policy(embeddings="trained", density=0.5).treatment("embeddings")
        'trained'
    """

    attention: Treatment = setting("masked", "Attention weights.")
    mlp: Treatment = setting("masked", "MLP weights.")
    embeddings: Treatment = setting("masked", "Token and position embeddings; the head is tied to them.")
    head: Treatment = "masked"  # no option: GPT-2's is an embedding
    norms: Constant = setting("frozen", "Norms; frozen ones stay 1.")
    biases: Constant = setting("frozen", "Biases; frozen ones stay 0.")
    density: float = setting(0.3, "Fraction of weights kept, in (0, 1].")
    scope: Scope = setting("tensor", "Rank scores in each tensor, or all together.")
    signed: bool = setting(False, "Rank scores by value, not by absolute value.")
    qk_scale: float | Literal["auto"] = setting("auto", "Factor on query and key weights; auto is n_K^(1/4).")
    factors: Literal["none"] | Mapping[str, float] = setting(
        "none", "Constant factors on the weights drawn, one per name or pattern."
    )
    init: Init = setting("own", "Distribution of the weights; own is GPT-2's.")
    rescale: bool = setting(False, "Multiply masked weights by 1 / sqrt(density).")
    score_init: ScoreInit = setting("kaiming", "Distribution of the first scores.")
    output_gain: float = setting(1.0, "Constant factor on the last norm's output.")
    scales: Scales = setting("none", "Learned factors: one per tensor, head, block of 64 x 64 weights, or output.")
    rule: str = setting(
        DEFAULT_RULE, "How the choice of weights is learned; see below.", metavar="NAME[:SETTING=X,...]"
    )
    densities: Shares | Mapping[str, float] = setting(
        "uniform", "Same density in every tensor (uniform), higher in small ones (erk), or one per name or pattern."
    )
    density_start: float = setting(1.0, "Density at the start of a ramp.")
    density_steps: int = setting(0, "Steps of a ramp to the final density; 0 for none.", least=0)

    def __post_init__(self) -> None:
        for group in GROUPS:
            _check_word(group, self.treatment(group), Treatment)
        for group in CONSTANT_GROUPS:
            if self.treatment(group) == "masked":
                raise ValueError(
                    f"{group} cannot be masked: their numbers are all equal, so there is nothing to choose. "
                    "Use frozen or trained."
                )
        self._check_densities()
        for name, words in (("scope", Scope), ("init", Init), ("score_init", ScoreInit), ("scales", Scales)):
            _check_word(name, getattr(self, name), words)
        name_of_rule(self.rule)
        if self.qk_scale != "auto":
            _check_positive("qk_scale", self.qk_scale, " or auto")
        _check_positive("output_gain", self.output_gain)
        given = self.factors if isinstance(self.factors, Mapping) else {}
        if not given and self.factors != "none":
            raise ValueError(f"factors must be none, or a number per name or pattern; got {self.factors!r:.40}.")
        for pattern, factor in given.items():
            _check_positive(f"factors: {pattern!r:.60}", factor)

    def _check_densities(self) -> None:
        given = self.densities if isinstance(self.densities, Mapping) else {}
        if not given:
            _check_word("densities", self.densities, Shares)
        own = {f"densities: {pattern!r:.60}": value for pattern, value in given.items()}
        for name, value in {"density": self.density, "density_start": self.density_start, **own}.items():
            if not _is_number(value):
                raise ValueError(f"{name} must be a number; got {value!r:.40}.")
            check_density(value, name)
        if self.densities != "uniform" and self.scope == "global":
            raise ValueError("densities of single tensors need scope='tensor': a global ranking sets its own.")
        if type(self.density_steps) is not int or self.density_steps < 0:
            raise ValueError(f"density_steps must be a whole number of at least 0; got {self.density_steps!r:.40}.")

    def density_at(self, step: int, density: float) -> float:
        """Return the density after a step of a ramp that ends at `density`.

        Example:
            >>> [Policy(density_steps=4).density_at(step, 0.2) for step in (0, 1, 4, 9)]
            [1.0, 0.8, 0.2, 0.2]
        """
        if step >= self.density_steps:
            return density
        return self.density_start + (density - self.density_start) * step / self.density_steps

    def __repr__(self) -> str:
        return f"Policy({', '.join(f'{name}={value!r}' for name, value in self._chosen().items())})"

    def _repr_html_(self) -> str:
        chosen = {name: str(value) for name, value in self._chosen().items() if name not in GROUPS}
        always = {name: str(getattr(self, name)) for name in ("density", "init", "rule")}
        groups = ((group, self.treatment(group)) for group in GROUPS)
        return card("Policy", always | chosen, table(("group", "treatment"), groups))

    def _chosen(self) -> dict[str, object]:
        values = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {name: value for name, (value, default) in values.items() if value != default}

    def treatment(self, group: Group) -> Treatment:
        """Return how the tensors of a group are treated."""
        chosen: Treatment = getattr(self, group)
        return chosen


def _check_word(name: str, value: object, words: Any) -> None:
    if value not in get_args(words):
        raise ValueError(f"{name} must be one of {', '.join(get_args(words))}; got {value!r:.40}.")


def _check_positive(name: str, value: float, otherwise: str = "") -> None:
    if not (_is_number(value) and 0 < value < math.inf):
        raise ValueError(f"{name} must be a positive number{otherwise}; got {value!r:.40}.")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
