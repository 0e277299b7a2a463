r"""How far a certificate for given sentences gets through all-MiniLM-L6-v2, and what stops it.

    python -m strongticket.bench.end_to_end --model FOLDER --ticket TICKET --text TEXT --out FILE

TICKET holds the attention. `strongticket.certify` for many sentences at once: shorter ones are padded by their last
token, to which no other token attends. For each layer the table has how far from the computed values the true ones can
be, behind the attention and behind the MLP, the certificate, the actual error, and the longest output.
"""

import argparse
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from strongticket.bench.script import markdown
from strongticket.construct.norms import row_norms
from strongticket.construct.places import Place
from strongticket.environment import environment
from strongticket.files import write_json
from strongticket.pretrained.certify import Places, follow
from strongticket.pretrained.load import load_model, load_tokenizer
from strongticket.pretrained.target import Target
from strongticket.pretrained.text import read_sentences
from strongticket.tickets.ticket import Ticket

READ = 1000  # sentences; the shortest are used


def main() -> None:
    """Follow the sentences, save the results, and print the table of `docs/scale.md`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "ticket", "text", "out"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--sentences", type=int, default=100)
    arguments = parser.parse_args()
    model, ticket = load_model(arguments.model), Ticket.load(Path(arguments.ticket))
    # Short ones favour a bound: in longer ones more tokens can be off.
    texts = sorted(read_sentences(Path(arguments.text), READ), key=len)[: arguments.sentences]
    batch = dict(load_tokenizer(arguments.model)(texts, padding=True, return_tensors="pt"))
    layers = list(by_layer(model, ticket, batch))
    about = {"command": "python -m strongticket.bench.end_to_end --model FOLDER --ticket TICKET --text TEXT --out FILE"}
    counted = {"sentences": len(texts), "tokens": int(batch["attention_mask"].sum()), "identity": ticket.identity}
    write_json(Path(arguments.out), {**about, **environment(), **counted, "layers": layers})
    print(markdown([{key: f"{value:.2g}" for key, value in layer.items()} for layer in layers]))


@torch.no_grad()
def by_layer(model: nn.Module, ticket: Ticket, batch: dict[str, Tensor]) -> Iterator[dict[str, float]]:
    """Yield the certificate behind each layer."""
    real = batch["attention_mask"].bool()
    exact: Any = copy.deepcopy(model).double()
    start = padded(exact(**batch, output_hidden_states=True).hidden_states[0], real)
    attends = real[:, None, :].expand(-1, real.shape[1], -1)
    balls: list[float] = []
    for layer, part, places in follow(Target(model), ticket, Places(start, start), attends=attends):
        balls.append(float(places.target.radius[real].max()))
        if part.in_mlp:
            attention, mlp = balls[-2:]
            yield {
                "layer": layer.index,
                "ball_behind_attention": attention,
                "ball_behind_mlp": mlp,
                "bound": float(places.target.error[real].max()),
                "seen": float((places.source.centre - places.target.centre)[real].norm(dim=-1).max()),
                "output_norm": float(row_norms(places.target.centre[real]).max()),
            }


def padded(embedded: Tensor, real: Tensor) -> Place:
    """Start behind the embeddings, equal in both networks."""
    last = real.sum(dim=1) - 1
    repeated = embedded[torch.arange(len(embedded)), last][:, None].expand_as(embedded)
    centre = torch.where(real[..., None], embedded, repeated)
    sure = torch.zeros(centre.shape[:-1], dtype=torch.float64)
    return Place(centre, sure, sure)


if __name__ == "__main__":
    main()
