r"""Attention as a part of a layer.

With merged matrices, heads are as wide as the model: queries are $[x; 1]^\top W_{QK}$, keys and values are $x$
itself, and the output is the sum over heads of head times $W_{VO}$. (In cross-attention, keys and values come from the
other sequence.) The heads of the literal source are `items` times wider still. So the model's own attention code runs
either form: only its linear maps, the width of a head and the scale are replaced.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from strongticket.bounds.certificate import AttentionNorms, Envelope, HeadNorms, propagate_attention
from strongticket.bounds.upward import Up, up_sqrt
from strongticket.construct.attention import head_products
from strongticket.construct.certify import describe_head, head_norms
from strongticket.construct.places import (
    Place,
    rotated,
    side_by_side,
    through_attention,
    through_head,
    through_linear,
)
from strongticket.construct.product import Pruned, PrunedHead
from strongticket.errors import StrongTicketError
from strongticket.models.attention import MergedAttention, causal_mask
from strongticket.ops.ordered import ordered_product
from strongticket.pretrained.layer import Affine, Layer, numbers
from strongticket.pretrained.parts import (
    INIT,
    Followed,
    Input,
    LinearMap,
    Mode,
    Network,
    Part,
    PartSettings,
    Through,
    largest_output,
    through_norm_of,
)
from strongticket.pretrained.pieces import Factors, Piece, Solved
from strongticket.pretrained.random_maps import (
    RandomHeads,
    RandomOutput,
    SideBySide,
    exact_bias,
    frozen_linear,
    weight_of,
)
from strongticket.tickets.details import PartNorms
from strongticket.tickets.ticket import Ticket

# The names that attention modules use for the width of one head, of all heads, and for the factor on their scores.
_HEAD_SIZES = ("head_dim", "attention_head_size", "head_size", "key_value_proj_dim")
_ALL_HEADS_SIZES = ("all_head_size", "split_size")
_SCALES = ("scaling", "scale")


@dataclass(frozen=True, kw_only=True)
class Heads(Part):
    """Attention: two products of random matrices per head, query by key and value by output, or one per linear map.

    Args:
        maps: the paths of the linear maps for query, key, value and output. The first three may be one fused map, given
            three times; the last is inside the attention or next to it.
        memory: the source of the inputs of keys and values, if it is not that of the queries.
        by_head: the fused map has query, key and value of the first head first, then those of the next.
        norms: the norms that each head's queries and keys pass before they are turned or multiplied, if there are any.
        causal: each token attends to itself and those before it, though not all attentions of the model are like that.
        positions: the module whose `compute_bias` gives what is added to the scores for two positions, or "".
    """

    name: str = "attention"
    maps: tuple[str, str, str, str]
    memory: Input | None = None
    by_head: bool = False
    norms: tuple[str, str] | tuple[()] = ()
    causal: bool = False
    positions: str = ""

    @property
    def fused(self) -> bool:
        """Whether one map makes queries, keys and values, side by side."""
        return len(set(self.maps[:3])) == 1

    def linear(self) -> Sequence[LinearMap]:
        """Return its maps as separate parts."""
        query, key, value, output = self.maps
        last = LinearMap(f"{self.name}.output", output, Mixed(self))
        if self.fused:
            return [LinearMap(f"{self.name}.qkv", query, self.input), last]
        # The source of a part's inputs is hashed under the part's name without its last word.
        of, memory = (self.name, self.input) if self.memory is None else (f"{self.name}.memory", self.memory)
        first = LinearMap(f"{self.name}.query", query, self.input)
        return [first, LinearMap(f"{of}.key", key, memory), LinearMap(f"{of}.value", value, memory), last]

    def check(self, config: Any) -> None:
        """Refuse a model whose scores are not given by a single matrix, or whose heads share keys."""
        if reason := why_not_merged(config):
            raise StrongTicketError(f"{config.model_type} {reason}")
        super().check(config)

    def reads(self, layer: Layer) -> dict[str, Input]:
        """Return the maps of queries and of keys."""
        query, key, *_ = self.maps
        return {layer.place(query): self.input, layer.place(key): self.memory or self.input}

    def tensors(self, layer: Layer) -> dict[str, Tensor]:
        """Return the four maps, the norm before them, and the scale of the scores."""
        named: dict[str, Tensor] = {}
        # Self-attention has always been hashed without its name as a prefix.
        prefix = "" if self.name == "attention" else f"{self.name}."
        for name, read in zip(("query", "key", "value", "output"), self._read(layer), strict=True):
            named |= read.named(f"{prefix}{name}")
        named[f"{self.name}.scaling"] = torch.tensor([self._cut(layer)[1]], dtype=torch.float64, device="cpu")
        if self.memory is not None:
            named |= self.memory.tensors(layer, f"{self.name}.memory_norm")
        return named | super().tensors(layer)

    def describe(self, layer: Layer) -> PartSettings:
        """Describe how the numbers are split into heads."""
        return {"n_heads": self._cut(layer)[0], "d_model": self._read(layer)[0].weight.shape[1]}

    def pieces(self, layer: Layer, **settings: Any) -> Sequence[Piece]:
        """Return one piece per head; they hold views of the model's numbers, not copies."""
        *inputs, output = self._read(layer)
        n, scaling = self._cut(layer)
        query, key, value = (part.weight.shape for part in inputs)
        if query[1] != key[1]:
            raise StrongTicketError(
                f"{layer.name}.{self.name} has keys of another width than queries; use --parts linear."
            )
        if query != key or value != (output.weight.shape[1], key[1]):
            shapes = ", ".join(str(tuple(shape)) for shape in (query, key, value, output.weight.shape))
            raise StrongTicketError(
                f"{layer.name}.{self.name}: query, key, value and output of shapes {shapes} do not fit together."
            )
        d, bias = query[1], inputs[0].bias is not None
        heads = zip(*(part.chunk(n) for part in inputs), output.weight.chunk(n, dim=1), strict=True)
        pieces = []
        for j, (q, k, v, o) in enumerate(heads):
            name, width = f"{layer.name}.{self.name}.head.{j}", settings["items"] * d
            qk, vo = head_products(name, d + bias, d, len(o), width, width, INIT)
            row = None if q.bias is None else numbers(q.bias)
            scores = Factors(numbers(q.weight).T, numbers(k.weight).T, row, scaling)
            values = Factors(numbers(v.weight).T, numbers(o))
            factors = {"qk": scores, "vo": values}
            pieces.append(Piece(name=name, products={"qk": qk, "vo": vo}, factors=factors, norms=_norms, **settings))
        return pieces

    def biases(self, layer: Layer) -> dict[str, Tensor]:
        """Return the output bias, which includes the value bias."""
        bias, _ = self._output_bias(layer)
        return {} if bias is None else {"output_bias": bias}

    def certify(self, layer: Layer, input_norm: float, solved: Sequence[Solved]) -> tuple[float, PartNorms]:
        """Combine the norms of all heads."""
        bias, rounding = self._output_bias(layer)
        size = float(bias.norm()) * (1 + 1e-12) if bias is not None else 0.0
        heads = tuple(HeadNorms(**head.norms) for head in solved)
        attention = AttentionNorms(heads=heads, bias_norm=size, bias_error=rounding)
        error = propagate_attention(Envelope(input_norm), attention).error
        return error, {"heads": [describe_head(head) for head in heads]}

    def put(self, layer: Layer, pieces: Sequence[Piece], ticket: Ticket | None, mode: Mode) -> None:
        """Replace the four maps, the width of a head and the scale."""
        like, d = weight_of(self.output(layer)), self._read(layer)[0].weight.shape[1]
        bias = self._output_bias(layer)[0]
        if ticket is not None:
            bias = exact_bias(ticket, f"{layer.name}.{self.name}.output_bias", like)
        inputs: list[nn.Module]
        output: nn.Module
        if ticket is None or mode == "merged":
            qk, vo = ([piece.merged(name, ticket, like.device) for piece in pieces] for name in ("qk", "vo"))
            merged = torch.cat([scores.T for scores in qk])  # (H d, d or d + 1)
            query = frozen_linear(merged[:, :d], merged[:, d] if merged.shape[1] > d else None, like)
            # Every head gets the input itself.
            inputs = [query, *(SideBySide([nn.Identity()] * len(pieces)) for _ in ("key", "value"))]
            output = frozen_linear(torch.cat([values.T for values in vo], dim=1), bias, like)
            head_size, scaling = d, 1.0
        else:
            *rest, outputs = zip(*([matrix.name for matrix in piece.matrices()] for piece in pieces), strict=True)
            inputs, output = [RandomHeads(ticket, name) for name in rest], RandomOutput(ticket, outputs, bias)
            head_size = pieces[0].items * d
            scaling = 1 / math.sqrt(head_size)
        for path, module in zip(self.maps, [SideBySide(inputs)] * 3 if self.fused else inputs, strict=False):
            layer.put(path, module)
        layer.put(self.maps[3], output)
        attention = layer.module(self.at)
        exchanged = {name: head_size for name in _HEAD_SIZES} | {name: scaling for name in _SCALES}
        exchanged |= {name: head_size * len(pieces) for name in _ALL_HEADS_SIZES}
        for name, number in exchanged.items():
            if hasattr(attention, name):
                setattr(attention, name, number)

    def branch(self) -> Input:
        """Return what the attention reads."""
        return self.input

    def through(self, layer: Layer, followed: Followed) -> Through:
        """Follow given samples through the merged heads."""
        pieces = self.pieces(layer, items=1, seed=0, assignment="adaptive", device="cpu")
        errors, (bias, rounding) = followed.errors(f"{layer.name}.{self.name}"), self._output_bias(layer)
        pruned = {f"head.{j}.{name}": each for j, head in enumerate(errors) for name, each in head.items()}
        exact = {name: replace(p, error=0 * p.error, rounding=0 * p.rounding) for name, p in pruned.items()}
        target = self._merged(pieces, bias)
        target.bias_rounding = torch.tensor([rounding], dtype=torch.float64)
        source = self._merged(pieces, bias)
        for j, head in enumerate(errors):
            source.qk.data[j] += head["qk"].error
            source.vo.data[j] += head["vo"].error
            source.qk_rounding[j], source.vo_rounding[j] = head["qk"].rounding, head["vo"].rounding

        def through(place: Place, network: Network) -> Place:
            attention, known = (target, pruned) if network == "target" else (source, exact)
            return through_attention(place, attention, known, *self.scored(layer, place, followed, network))

        return through

    def scored(
        self, layer: Layer, place: Place, followed: Followed, network: Network
    ) -> tuple[Tensor | None, Place | None, Tensor | None]:
        """Return who attends to whom, the place of keys and values if it is another, and what is added to scores."""
        if self.memory is not None:
            if not followed.memory:
                raise StrongTicketError(f"{layer.name}.{self.name} reads an encoder, but none comes before it.")
            return None, followed.memory[network], None
        tokens, added = place.centre.shape[-2], None
        if self.positions:
            bias: Any = layer.module(self.positions)
            added = bias.compute_bias(tokens, tokens)[0].double()  # (H, T, T)
        return (causal_mask(tokens) if self.causal else followed.attends), None, added

    def _merged(self, pieces: Sequence[Piece], bias: Tensor | None) -> MergedAttention:
        """Return the heads by their merged matrices."""
        qk, vo = (torch.stack([piece.factors[name].matrix("cpu") for piece in pieces]) for name in ("qk", "vo"))
        merged = MergedAttention(qk, vo, None if bias is None else bias.double())
        for name, rounding in (("qk", merged.qk_rounding), ("vo", merged.vo_rounding)):
            for j, piece in enumerate(pieces):
                rounding[j] = piece.factors[name].rounding("cpu")
        return merged

    def output(self, layer: Layer) -> nn.Module:
        """Return the map after the heads."""
        return layer.module(self.maps[3])

    def apply(self, layer: Layer, *args: Any, **kwargs: Any) -> Any:
        """Run the heads, and then the output map if it is not inside the attention."""
        result = layer.module(self.at)(*args, **kwargs)
        heads = result[0] if isinstance(result, tuple) else result
        inside = not self.at or self.maps[3].startswith(f"{self.at}.")
        return heads if inside else self.output(layer)(heads)

    def _read(self, layer: Layer) -> tuple[Affine, Affine, Affine, Affine]:
        query, key, value, output = (layer.linear_map(path) for path in self.maps)
        if self.fused:
            query, key, value = query.chunk(3)
        return query, key, value, output

    def head_size(self, layer: Layer) -> int:
        """Return the width of one head."""
        return int(self._number(layer, _HEAD_SIZES, int, "describe each of its maps as a LinearMap"))

    def _cut(self, layer: Layer) -> tuple[int, float]:
        """Return the number of heads and the factor on their scores."""
        return len(self._read(layer)[0].weight) // self.head_size(layer), self.scaling(layer)

    def scaling(self, layer: Layer) -> float:
        """Return the factor on the scores."""
        return self._number(layer, _SCALES, float, "merged heads need it; use --parts linear")

    def _number(self, layer: Layer, names: Sequence[str], kind: type[int | float], advice: str) -> float:
        """Read an attribute of the attention under the first of these names that it has."""
        attention = layer.module(self.at)
        for name in names:
            if isinstance(number := getattr(attention, name, None), kind):
                return number
        raise StrongTicketError(f"{type(attention).__name__} has no attribute {' or '.join(names)}; {advice}.")

    def _output_bias(self, layer: Layer) -> tuple[Tensor | None, float]:
        """Move the value bias after the heads, as attention weights sum to 1; return it and its rounding error."""
        _, _, (_, value), (weight, output) = self._read(layer)
        if value is None:
            return (output.double() if output is not None else None), 0.0
        weight = weight.double()
        moved = ordered_product(weight, value.double()[None])[:, 0]  # (d_out,)
        size = (weight.abs() @ value.double().abs()) + (output.double().abs() if output is not None else 0.0)
        rounding = (len(value) + 2) * 2.0**-53 * 1.01 * float(size.norm())
        return (moved + output.double() if output is not None else moved), rounding


def _norms(targets: Mapping[str, Tensor], pruned: Mapping[str, Pruned]) -> dict[str, float]:
    """Compute the norms of both merged matrices, of their errors and of the bias row."""
    return asdict(head_norms(targets["qk"], targets["vo"], PrunedHead(**pruned)))


@dataclass(frozen=True, slots=True)
class Mixed(Input):
    r"""The concatenated heads of an attention, each a mixture of the values that a linear map makes for it.

    A mixture is no longer than its longest component, but every head may attend to a different token. So the bound is
    $\sqrt{\sum_j (\|W_j\| \alpha + \|b_j\|)^2}$ over the heads; with grouped heads, some share their $W_j$.

    Args:
        heads: the attention.
    """

    heads: Heads

    def largest(self, layer: Layer) -> float:
        """Bound all heads together."""
        heads, squares = self.heads, Up(0.0)
        size, alpha = heads.head_size(layer), (heads.memory or heads.input).largest(layer)
        map = layer.linear_map(heads.maps[2])
        values = map.chunk(len(map.weight) // size)[self._values(layer)]
        if not values:
            raise StrongTicketError(f"{heads.maps[2]} has {len(map.weight)} outputs, which leaves none for values.")
        for value in values:
            longest = largest_output(value, alpha)
            squares += longest * longest
        return up_sqrt((squares * math.ceil(self._n_heads(layer) / len(values))).value).value

    def in_words(self) -> str:
        """Name what it mixes."""
        return "mixtures of values"

    def made_from(self, layer: Layer) -> dict[str, Tensor]:
        """Return the rows of the values."""
        path, size = self.heads.maps[2], self.heads.head_size(layer)
        rows = torch.arange(len(layer.linear_map(path).weight), device="cpu").view(-1, size)
        return {layer.place(path): rows[self._values(layer)].flatten()}

    def drawn(self, layer: Layer, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Draw 0, 1 and random signs in turn: weights must add up to at most 1, whether or not some are negative."""
        made = torch.randint(0, 2, shape, generator=generator, device="cpu").mul_(2).sub_(1).float()
        heads = made.view(*shape[:-1], -1, self.heads.head_size(layer))
        heads[..., 0::3], heads[..., 1::3] = 0, 1
        return heads.flatten(-2)

    def at_most(self, layer: Layer, *outputs: Tensor) -> Tensor:
        """Return the largest value: a mixture has none larger, and its heads are side by side."""
        heads = outputs[0].abs().reshape(-1, self.heads.head_size(layer))
        return heads.amax(dim=0).repeat(1, self._n_heads(layer))

    def branch(self) -> Input:
        """Return what the attention reads."""
        return self.heads.input

    def through(self, layer: Layer, last: LinearMap, followed: Followed) -> Through:
        """Follow given samples through the heads, one by one."""
        size, n, scale = self.heads.head_size(layer), self._n_heads(layer), self.heads.scaling(layer)
        *inputs, _ = self.heads.linear()
        maps = [part.map(layer, followed) for part in inputs] * (3 if self.heads.fused else 1)
        output = last.map(layer, followed)
        places = [range(len(map.bias) // size) for map in maps]
        if self.heads.fused:
            every = places[0]
            values = every[self._values(layer)]
            places = [every[:n], every[n : n + len(values)], values]
        turned = [table.chunk(2, dim=-1) for table in followed.rotary or ()]
        if any(first.shape[-1] * 2 != size or not torch.equal(first, second) for first, second in turned):
            raise StrongTicketError(f"{layer.name}.{self.heads.name} has rotary positions that are no rotations.")
        if any(len(layer.norm(path).weight) != size for path in self.heads.norms):
            raise StrongTicketError(
                f"{layer.name}.{self.heads.name} has norms of queries and keys of all heads together."
            )
        normed = [through_norm_of(layer, path) for path in self.heads.norms]
        cut = [[map.columns(slice(j * size, (j + 1) * size)) for j in at] for map, at in zip(maps, places, strict=True)]

        def through(place: Place, network: Network) -> Place:
            attends, memory, added = self.heads.scored(layer, place, followed, network)

            def head(which: int, j: int) -> Place:
                map, read = cut[which][j * len(cut[which]) // n], memory if which and memory is not None else place
                made = through_linear(read, map if network == "target" else map.source())
                made = normed[which](made) if which < len(normed) else made
                return rotated(made, *followed.rotary) if followed.rotary is not None and which < 2 else made

            mixed = [
                through_head(head(0, j), head(1, j), head(2, j), scale, attends, None if added is None else added[j])
                for j in range(n)
            ]
            return through_linear(side_by_side(mixed), output if network == "target" else output.source())

        return through

    def _n_heads(self, layer: Layer) -> int:
        return layer.linear_map(self.heads.maps[3]).weight.shape[1] // self.heads.head_size(layer)

    def _values(self, layer: Layer) -> slice:
        """Return which of the map's outputs are values, counted in heads."""
        if not self.heads.fused:
            return slice(None)
        if self.heads.by_head:
            return slice(2, None, 3)
        # Queries come first; then there are as many keys as values.
        n = len(layer.linear_map(self.heads.maps[2]).weight) // self.heads.head_size(layer)
        return slice((self._n_heads(layer) + n) // 2, None)


def why_not_merged(config: Any) -> str:
    """Explain why a model's heads cannot be merged into products; "" if they can."""

    def has(*names: str) -> bool:
        return any(getattr(config, name, None) for name in names)

    heads, groups = (getattr(config, name, None) for name in ("num_attention_heads", "num_key_value_heads"))
    if None not in (heads, groups) and groups != heads:
        return (
            f"has grouped-query attention: {heads} heads share {groups} keys and values. "
            "Merged heads need separate keys and values; describe its family with linear=True."
        )
    if has("rope_parameters", "rope_theta", "rotary_dim", "rotary_pct"):
        return (
            "has rotary positions, which rotate queries and keys by position: no single matrix W_QK gives its scores, "
            "so there is none to prune into; describe its family with linear=True."
        )
    if (positions := getattr(config, "position_embedding_type", None) or "absolute") != "absolute":
        return f"has position_embedding_type {positions!r}, which adds to the scores; only 'absolute' is covered."
    return ""
