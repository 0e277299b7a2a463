import math

import pytest
import torch

from strongticket.data.angular import draw_angular, with_token


def test_points_lie_on_the_unit_circle_and_turn_at_a_constant_rate() -> None:
    data = draw_angular("train", 50, seed=3)
    x = data.sequences(6)
    torch.testing.assert_close(x.norm(dim=-1), torch.ones(50, 6, dtype=torch.float64), rtol=0, atol=1e-15)
    turned = torch.view_as_complex(x[:, 1:].contiguous()) / torch.view_as_complex(x[:, :-1].contiguous())
    torch.testing.assert_close(turned.angle(), data.velocity[:, None].expand(50, 5), rtol=0, atol=1e-12)


def test_the_first_point_has_turned_once_already() -> None:
    """B.1 counts t from 1."""
    data = draw_angular("test", 5)
    first = torch.view_as_complex(data.sequences(1)[:, 0].contiguous())
    expected = torch.polar(torch.ones(5, dtype=torch.float64), data.velocity + data.phase)
    torch.testing.assert_close(first, expected)


def test_velocity_and_phase_fill_their_ranges() -> None:
    data = draw_angular("validation")
    assert len(data) == 10_000
    for values, low, high in ((data.velocity, -math.pi, math.pi), (data.phase, 0.0, math.pi)):
        assert low <= values.min() < low + 0.01
        assert high - 0.01 < values.max() <= high
        # The mean of 10,000 uniform numbers has a standard deviation of (high - low) / 346.
        assert abs(values.mean().item() - (low + high) / 2) < 4 * (high - low) / 346


def test_splits_and_seeds_have_streams_of_their_own() -> None:
    draws = [
        draw_angular(split, 20, seed=seed).velocity for split in ("train", "validation", "test") for seed in (0, 1)
    ]
    for k, one in enumerate(draws):
        assert all(not torch.equal(one, other) for other in draws[:k])
    assert torch.equal(draw_angular("test", 20, seed=1).velocity, draws[-1])


def test_fewer_samples_and_shorter_sequences_are_prefixes() -> None:
    few, many = draw_angular("test", 7), draw_angular("test", 30)
    assert torch.equal(few.sequences(4), many[:7].sequences(9)[:, :4])


def test_token_comes_first() -> None:
    x = with_token(torch.tensor([0.5, -1.0]), torch.zeros(3, 4, 2))
    assert x.shape == (3, 5, 2)
    assert x[:, 0].tolist() == [[0.5, -1.0]] * 3


def test_bad_input_is_told() -> None:
    with pytest.raises(ValueError, match="split must be one of train, validation, test; got 'exam'"):
        draw_angular("exam")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="samples must be at least 1 and seed at least 0; got 0 and 0"):
        draw_angular("test", 0)
    with pytest.raises(ValueError, match="at least one point; got length 0"):
        draw_angular("test", 3).sequences(0)
