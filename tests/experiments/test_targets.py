import math
from dataclasses import replace

import torch

from strongticket.experiments.targets import Target, TargetConfig, draw_target, make_target, token_output
from tests.experiments.runs import TRAINED, UNTRAINED


def test_drawn_as_in_appendix_b1() -> None:
    target = draw_target(TargetConfig(key_width=400, value_width=400), seed=5)
    for weight, scale in (
        (target.attention.query, 400**0.25),
        (target.attention.key, 400**0.25),
        (target.attention.value, 1.0),
        (target.attention.output, 1.0),
    ):
        # The largest of 400 or more uniform numbers lies this close to the end, all but surely (chance 1e-8 or less).
        assert 0.955 * scale < weight.abs().max() <= scale
    assert target.token.tolist() == [0.0, 0.0]
    assert target.attention.output.shape == (1, 400, 1)


def test_same_seed_same_target() -> None:
    assert make_target(TRAINED, 1, 0) == make_target(TRAINED, 1, 0)
    assert make_target(UNTRAINED, 1, 0)["query"] != make_target(UNTRAINED, 1, 1)["query"]
    assert make_target(UNTRAINED, 1, 0)["query"] != make_target(UNTRAINED, 2, 0)["query"]


def test_training_moves_the_token_and_lowers_the_loss() -> None:
    made = make_target(TRAINED, 0, 0)
    losses = made["training"]["validation_losses"]
    assert len(losses) == 1 + TRAINED.epochs
    assert losses[-1] < losses[0]
    assert made["training"]["best_validation_loss"] == min(losses)
    assert made["training"]["final_validation_loss"] == losses[-1]
    assert made["token"] != [0.0, 0.0]
    untrained = make_target(replace(TRAINED, kind="untrained"), 0, 0)
    assert untrained["training"] is None
    for part in ("query", "key", "value", "output"):
        assert made[part] != untrained[part]


def test_norms_are_those_of_the_matrices_and_normalize_bounds_them() -> None:
    made = make_target(UNTRAINED, 0, 0)
    read = Target.from_json(made)
    for part, norm in made["norms"].items():
        weight = getattr(read.attention, part)[0]
        assert math.isclose(norm, torch.linalg.svdvals(weight)[0].item(), rel_tol=1e-12)
    assert max(made["norms"].values()) > 1.5
    bounded = make_target(replace(UNTRAINED, normalize=True), 0, 0)
    assert max(bounded["norms"].values()) <= 1 + 1e-12
    direction = torch.tensor(made["query"]) / torch.tensor(bounded["query"])
    torch.testing.assert_close(direction, direction[0, 0, 0].expand_as(direction))


def test_merged_matrices_are_recorded() -> None:
    made = make_target(UNTRAINED, 3, 0)
    merged = Target.from_json(made).attention.merged()
    assert merged.qk.tolist() == made["merged_qk"]
    assert merged.vo.tolist() == made["merged_vo"]


def test_input_norm_covers_circle_and_token() -> None:
    made = make_target(UNTRAINED, 0, 0)
    assert 1 < Target.from_json(made).input_norm() < 1 + 1e-15
    assert Target.from_json(made | {"token": [3.0, 4.0]}).input_norm() > 5


def test_token_output_is_the_first_token_of_the_whole_attention() -> None:
    merged = Target.from_json(make_target(UNTRAINED, 0, 0)).attention.merged()
    x = torch.randn(4, 7, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(token_output(merged.qk, merged.vo, x), merged(x)[:, 0], rtol=0, atol=1e-14)
