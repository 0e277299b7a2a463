r"""How far a bound for given sentences gets through all-MiniLM-L6-v2, and which parts stop it.

    python -m strongticket.bench.end_to_end --model FOLDER --ticket TICKET --text TEXT --out FILE

TICKET holds the attention. The recursion of `docs/theory.md`, section 10, follows the sentences through the layers:
attention, LayerNorm, MLP, LayerNorm. The table has the bound, what each part adds and by how much it multiplies its
input's error (by the bound and, for MLPs, by the Jacobians at the tokens), and the actual error, by running both.
"""

import argparse
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from strongticket.bench.script import markdown
from strongticket.construct.norms import row_norms, spectral_norm
from strongticket.construct.places import Place, through_attention, through_norm
from strongticket.construct.product import Pruned
from strongticket.environment import environment
from strongticket.files import write_json
from strongticket.models.attention import MergedAttention
from strongticket.pretrained.attaching import attach
from strongticket.pretrained.load import load_model, load_tokenizer
from strongticket.pretrained.random_maps import multiply_out
from strongticket.pretrained.target import Target
from strongticket.pretrained.text import read_sentences
from strongticket.tickets.ticket import Ticket

GELU_SLOPE = 1.13  # its largest, rounded up
SMALL = 1e-9  # input error at which the slope of a bound is taken
JACOBIANS = 50  # of tokens
READ = 1000  # sentences; the shortest are used


def main() -> None:
    """Follow the sentences, save the results, and print the table of `docs/scale.md`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "ticket", "text", "out"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--sentences", type=int, default=100)
    arguments = parser.parse_args()
    model, ticket = load_model(arguments.model).double(), Ticket.load(Path(arguments.ticket))
    # Short ones favour a bound: in longer ones more tokens can be off.
    texts = sorted(read_sentences(Path(arguments.text), READ), key=len)[: arguments.sentences]
    batch = dict(load_tokenizer(arguments.model)(texts, padding=True, return_tensors="pt"))
    layers = list(follow(model, ticket, batch))
    about = {"command": "python -m strongticket.bench.end_to_end --model FOLDER --ticket TICKET --text TEXT --out FILE"}
    counted = {"sentences": len(texts), "tokens": int(batch["attention_mask"].sum()), "identity": ticket.identity}
    write_json(Path(arguments.out), {**about, **environment(), **counted, "layers": layers})
    print(markdown([{key: f"{value:.2g}" for key, value in layer.items()} for layer in layers]))


@torch.no_grad()
def follow(model: nn.Module, ticket: Ticket, batch: dict[str, Tensor]) -> Iterator[dict[str, object]]:
    """Yield the bound in each layer."""
    real, own = batch["attention_mask"].bool(), Target(copy.deepcopy(model).float())
    outputs = [
        run(**batch, output_hidden_states=True).hidden_states for run in (model, attach(model, ticket, "merged"))
    ]
    seen = [(ours - theirs)[real].norm(dim=-1).max().item() for theirs, ours in zip(*outputs, strict=True)]
    place = start(outputs[0][0], real)
    attends = real[:, None, :].expand(-1, real.shape[1], -1)
    work = own.pieces(ticket.architecture["items"], ticket.seed)
    backbone: Any = model
    for index, (name, (layer, part)) in enumerate(own.parts.items()):
        module = backbone.encoder.layer[index]
        merged, pruned = _read(work[name], part.biases(layer)["output_bias"], ticket)
        # By itself: with exact inputs, or with a very small error.
        sure = torch.zeros_like(place.error)
        added = through_attention(Place(place.centre, sure, sure), merged, pruned, attends).error
        moved = through_attention(Place(place.centre, sure, sure + SMALL), merged, pruned, attends).error
        after = place.plus(through_attention(place, merged, pruned, attends))
        first, first_slope = _norm(after, module.attention.output.LayerNorm)
        up, down = module.intermediate.dense, module.output.dense
        slope = GELU_SLOPE * spectral_norm(up.weight) * spectral_norm(down.weight)
        centre = down(nn.functional.gelu(up(first.centre)))
        mlp = Place(centre, first.radius * slope, first.error * slope)
        place, second_slope = _norm(first.plus(mlp), module.output.LayerNorm)
        yield {
            "layer": index,
            "attention_adds": float(added.max()),
            "attention_slope": float(((moved - added) / SMALL).max()),
            "first_norm_slope": first_slope,
            "mlp_slope": slope,
            "mlp_jacobian": _largest_jacobian(first.centre[real], up, down),
            "second_norm_slope": second_slope,
            "bound": float(place.error.max()),
            "seen": seen[index + 1],
            "output_norm": float(row_norms(place.centre[real]).max()),
        }


def start(embedded: Tensor, real: Tensor) -> Place:
    """Start after the embeddings, equal in both networks; padding repeats a sentence's last token."""
    last = real.sum(dim=1) - 1
    repeated = embedded[torch.arange(len(embedded)), last][:, None].expand_as(embedded)
    centre = torch.where(real[..., None], embedded, repeated)
    sure = torch.zeros(centre.shape[:-1], dtype=torch.float64)
    return Place(centre, sure, sure)


def _read(heads: Any, bias: Tensor, ticket: Ticket) -> tuple[MergedAttention, dict[str, Pruned]]:
    """Return the target's heads, merged, and the ticket's errors on them."""
    targets, pruned = [head.targets() for head in heads], {}
    for j, (head, target) in enumerate(zip(heads, targets, strict=True)):
        for name, product in head.products.items():
            error = multiply_out(ticket, product, "cpu") - target[name]
            pruned[f"head.{j}.{name}"] = Pruned((), error, torch.zeros_like(error), [])
    qk, vo = (torch.stack([target[name] for target in targets]) for name in ("qk", "vo"))
    return MergedAttention(qk, vo, bias.double()), pruned


def _norm(place: Place, norm: nn.LayerNorm) -> tuple[Place, float]:
    """Pass a LayerNorm; also return its largest slope at the tokens."""
    small = Place(place.centre, torch.zeros_like(place.radius), torch.full_like(place.error, SMALL))
    slope = through_norm(small, norm.weight, norm.bias, norm.eps, centred=True).error.max().item() / SMALL
    return through_norm(place, norm.weight, norm.bias, norm.eps, centred=True), slope


def _largest_jacobian(tokens: Tensor, up: nn.Linear, down: nn.Linear) -> float:
    """Return the largest norm of the MLP's Jacobian over some evenly spaced tokens."""
    some = tokens[:: max(1, len(tokens) // JACOBIANS)]
    h = up(some).double()
    # gelu'(h) = Phi(h) + h phi(h)
    slopes = torch.special.ndtr(h) + h * torch.exp(-h * h / 2) / (2 * torch.pi) ** 0.5
    return max(spectral_norm(down.weight @ (slope[:, None] * up.weight)) for slope in slopes)


if __name__ == "__main__":
    main()
