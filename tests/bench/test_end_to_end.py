"""The bound from end to end is above what is there, layer by layer, padding included."""

import torch
from tests.pretrained.small_models import VOCABULARY, make_bert, randomize

from strongticket.bench.end_to_end import follow
from strongticket.pretrained import construct_pretrained


def test_no_layer_errs_more_than_its_bound() -> None:
    model = randomize(make_bert()).double()
    ticket = construct_pretrained(model, items=24)
    ids = torch.randint(VOCABULARY, (3, 7), generator=torch.Generator().manual_seed(0))
    real = torch.ones(3, 7, dtype=torch.int64)
    real[1, 4:] = 0
    layers = list(follow(model, ticket, {"input_ids": ids, "attention_mask": real}))
    assert [row["layer"] for row in layers] == [0, 1]
    for row in layers:
        assert 0 < row["seen"] <= row["bound"]
        assert row["mlp_jacobian"] <= row["mlp_slope"]
