"""Find a picture inside a random two-layer network: choose weights, train none, store a seed and some bits.

    python examples/hide_a_matrix.py [--items 24] [--out hidden.ticket]

Lemma 7 of the paper, by hand: unit k of the first layer keeps one weight, u_k, to its own input j(k). Entry (i, j) of
the product is then the sum of the u_k v_ik that the second layer's mask keeps, and choosing them is a subset sum.
"""

import argparse
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path

import torch

import strongticket as st

PICTURE = Path(__file__).with_name("picture.txt")
SEED = 0


def read_picture() -> torch.Tensor:
    """Read the target: digits 0 to 9 become entries from -0.5 to 0.5."""
    rows = PICTURE.read_text().split()
    return torch.tensor([[int(digit) / 9 - 0.5 for digit in row] for row in rows], dtype=torch.float64)


def show(matrix: torch.Tensor) -> str:
    """Draw a matrix in characters, two for each entry."""
    shades = " .:-=+*#%@"
    levels = ((matrix + 0.5) * 9).round().clamp(0, 9).int().tolist()
    return "\n".join("".join(shades[level] * 2 for level in row) for row in levels)


def hide(target: torch.Tensor, items: int) -> st.Ticket:
    """Prune a random network of `items` hidden units an input into the target."""
    outputs, inputs = target.shape
    units = inputs * items
    first = st.random_weights(SEED, "first", (units, inputs))
    second = st.random_weights(SEED, "second", (outputs, units))
    u = first[torch.arange(units), torch.arange(units) // items]
    solved = st.subset_sum_products(target, u, second, torch.full((inputs,), items))
    return st.Ticket(
        seed=SEED,
        tensors=[
            st.RandomTensor(name="first", mask=st.BlockMask((units, inputs), unit_axis=0, sizes=items)),
            st.RandomTensor(name="second", mask=st.PackedMask.from_bool(solved.mask)),
        ],
        architecture={"family": "linear", "inputs": inputs, "outputs": outputs, "hidden_width": units},
        # Not part of its identity; `strongticket show` and the report say it.
        metadata={"command": shlex.join(["python", *sys.argv]), "date": datetime.now(UTC).isoformat("T", "minutes")},
    )


def main() -> None:
    """Hide the picture, write the ticket, read it back and look."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=24, help="random products to choose from, for each entry")
    parser.add_argument("--out", type=Path, default=Path("out/hidden.ticket"), help="where the ticket goes")
    arguments = parser.parse_args()

    target = read_picture()
    ticket = hide(target, arguments.items)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    ticket.save(arguments.out)

    loaded = st.Ticket.load(arguments.out)
    weights = loaded.materialize()
    found = weights["second"].double() @ weights["first"].double()
    error = (found - target).abs()
    print(show(found))
    print(f"\nA product of two random matrices: {loaded.kept():,} of {loaded.numel:,} weights kept, none trained.")
    print(f"Error of an entry: median {error.median():.1e}, largest {error.max():.1e}. Ticket: {arguments.out}")


if __name__ == "__main__":
    main()
