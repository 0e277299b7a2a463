"""A ticket for an attention of your own: any module that can name its four matrices.

    python examples/own_attention.py [--out own.ticket]

Multi-head attention is four matrices a head, and a ticket approximates their products query times key and value times
output. Hand the matrices over as a `strongticket.models.attention.Attention`; whatever else your module does around
them (positions, caches, dropout) is none of its business.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn

import strongticket as st
from strongticket.models.attention import Attention, causal_mask

HEADS, D_MODEL, D_HEAD = 2, 8, 4


class MyAttention(nn.Module):
    """A causal attention as people write it: one fused projection in, one out."""

    def __init__(self) -> None:
        super().__init__()
        self.fused = nn.Linear(D_MODEL, 3 * HEADS * D_HEAD, bias=False)
        self.out = nn.Linear(HEADS * D_HEAD, D_MODEL, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Take (batch, tokens, d_model) to the same."""
        q, k, v = self.fused(x).unflatten(-1, (3, HEADS, D_HEAD)).permute(2, 0, 3, 1, 4)  # (batch, heads, tokens, d)
        heads = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(heads.transpose(1, 2).flatten(-2))


def as_attention(module: MyAttention) -> Attention:
    """Name the four matrices: query, key and value (heads, d_model, d_head), output (heads, d_head, d_model)."""
    query, key, value = module.fused.weight.T.unflatten(1, (3, HEADS, D_HEAD)).permute(1, 2, 0, 3)
    return Attention(query, key, value, module.out.weight.T.unflatten(0, (HEADS, D_HEAD)))


def main() -> None:
    """Prune a random attention into the module, save it, load it, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/own.ticket"), help="where the ticket goes")
    out = parser.parse_args().out

    torch.manual_seed(0)
    module = MyAttention().double().requires_grad_(False)
    x = nn.functional.normalize(torch.randn(64, 12, D_MODEL, dtype=torch.float64), dim=-1)
    causal = causal_mask(x.shape[1])
    assert torch.allclose(as_attention(module)(x, causal), module(x))  # the matrices are named rightly

    width = 20 * D_MODEL  # 20 random products for each entry
    ticket = st.construct_attention(as_attention(module), key_width=width, value_width=width, seed=7, input_norm=1.0)
    out.parent.mkdir(parents=True, exist_ok=True)
    ticket.save(out)

    found = st.Ticket.load(out).build(dtype=torch.float64)  # a random attention, pruned; nothing of yours is in it
    error = (found(x, causal) - module(x)).norm(dim=-1).max()
    # Rounded: torch draws the module's weights, and not with the same bits on every kind of CPU.
    kept, size = f"{100 * ticket.density:.0f} %", f"{out.stat().st_size / 1000:.1f} kB"
    print(f"{kept} of {ticket.numel:,} random weights kept, none trained; {size}")
    print(f"largest error of a token {error:.1e}, certified for every input of norm 1: {ticket.certificate.error:.1e}")


if __name__ == "__main__":
    main()
