"""The certificate of many sentences at once is above what is there, layer by layer, padding included."""

import copy

import torch
from tests.pretrained.small_models import VOCABULARY, make_bert, randomize

from strongticket import attach, certify
from strongticket.bench.end_to_end import by_layer
from strongticket.pretrained import construct_pretrained


def test_no_layer_errs_more_than_its_bound() -> None:
    model = randomize(make_bert())
    ticket = construct_pretrained(model, items=24)
    ids = torch.randint(VOCABULARY, (3, 7), generator=torch.Generator().manual_seed(0))
    real = torch.ones(3, 7, dtype=torch.int64)
    real[1, 4:] = 0
    batch = {"input_ids": ids, "attention_mask": real}
    exact = copy.deepcopy(model).double()
    with torch.no_grad():
        runs = [each(**batch, output_hidden_states=True).hidden_states for each in (exact, attach(exact, ticket))]
    seen = [(ours - theirs)[real.bool()].norm(dim=-1).max().item() for theirs, ours in zip(*runs, strict=True)]
    rows = list(by_layer(model, ticket, batch))
    assert [row["layer"] for row in rows] == [0, 1]
    for row, truth in zip(rows, seen[1:], strict=True):
        assert 0 < truth <= row["bound"] < 1.01 * truth
        assert abs(row["seen"] - truth) < 1e-9
        assert 0 < row["ball_behind_attention"] < row["ball_behind_mlp"] < 1e-9
    # The sentence without padding, by itself.
    alone = certify(ticket, model, ids[1:2, :4]).by_block
    assert all(one <= row["bound"] * (1 + 1e-6) for one, row in zip(alone, rows, strict=True))
