"""Write the golden tickets. Run once a format version, never again: the tests hold every later release to these files.

python -m tests.golden.make
"""

import json
from pathlib import Path

import torch

from strongticket import BlockMask, DenseTensor, FullMask, PackedMask, RandomTensor, Ticket
from strongticket.tickets.content import digest_of_tensors
from tests.small_tickets import small_ticket

FOLDER = Path(__file__).parent


def attention_like() -> Ticket:
    """One head as Theorem 3 makes it: implicit first masks, free second ones, an exact output bias."""
    d, items = 8, 12
    units = d * items
    names = ("query", "key", "value", "output")
    blocks = {"query": BlockMask((d, units), 1, items), "value": BlockMask((d, units), 1, items)}
    free = {name: PackedMask.random((units, d), 0.5, seed=i) for i, name in enumerate(("key", "output"))}
    scale = {"query": units**0.25, "key": units**0.25, "value": 1.0, "output": 1.0}
    return Ticket(
        seed=0,
        tensors=[RandomTensor(name=f"head.0.{n}", mask={**blocks, **free}[n], scale=scale[n]) for n in names],
        dense=[DenseTensor(name="output.bias", value=torch.linspace(-1, 1, d))],
        architecture={"family": "attention", "d_model": d, "n_heads": 1, "key_width": units, "value_width": units},
    )


def search_like() -> Ticket:
    """Masked matrices at density 0.3 and 0.05, frozen random embeddings, normal and signed-constant weights."""
    return Ticket(
        seed=2**64 - 1,
        tensors=[
            RandomTensor(name="wte.weight", mask=FullMask((300, 16)), distribution="normal", scale=0.02),
            RandomTensor(
                name="h.0.attn.q",
                mask=PackedMask.random((64, 64), 0.3, seed=4),
                distribution="normal",
                scale=0.02 * 8**0.5,
            ),
            RandomTensor(
                name="h.0.mlp.up", mask=PackedMask.random((63, 65), 0.05, seed=5), distribution="sign", scale=0.1
            ),
        ],
        architecture={"family": "gpt2", "size": "golden", "output_gain": 4.0},
        metadata={"note": "golden"},
    )


if __name__ == "__main__":
    made = {"every-feature": small_ticket(), "attention": attention_like(), "search": search_like()}
    expected = {}
    for name, ticket in made.items():
        ticket.save(FOLDER / f"{name}.ticket")
        masked = digest_of_tensors(dict(ticket.materialize()))
        expected[f"{name}.ticket"] = {"identity": ticket.identity, "masked_weights": masked}
    (FOLDER / "expected.json").write_text(json.dumps(expected, indent=2) + "\n")
