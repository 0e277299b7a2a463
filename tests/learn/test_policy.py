import json
from dataclasses import asdict
from typing import Any

import pytest

from strongticket.learn.policy import Policy


def test_a_policy_is_plain_json() -> None:
    by_name = {"densities": {"*.conv": 0.1}, "factors": {"tokens.weight": 2.0}}
    policy = Policy(embeddings="trained", qk_scale=2.0, signed=True, rule="iterand:every=3", **by_name)
    assert Policy(**json.loads(json.dumps(asdict(policy)))) == policy


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mlp": "pruned"}, "mlp must be one of masked, frozen, trained; got 'pruned'"),
        ({"norms": "masked"}, "norms cannot be masked.*Use frozen or trained"),
        ({"biases": "masked"}, "biases cannot be masked"),
        ({"density": 70}, r"density must be in \(0, 1\]; got 70. It is the fraction kept"),
        ({"density": 0}, r"density must be in \(0, 1\]; got 0"),
        ({"density": float("nan")}, r"density must be in \(0, 1\]; got nan"),
        ({"density_start": 0}, r"density_start must be in \(0, 1\]; got 0. It is the fraction kept"),
        ({"density_steps": -1}, "density_steps must be a whole number of at least 0; got -1"),
        ({"density_steps": 2.5}, "density_steps must be a whole number of at least 0; got 2.5"),
        ({"densities": "small"}, "densities must be one of uniform, erk; got 'small'"),
        ({"densities": {}}, "densities must be one of uniform, erk; got {}"),
        ({"densities": {"*.weight": 2}}, r"densities: '\*\.weight' must be in \(0, 1\]; got 2"),
        ({"densities": {"*.weight": "all"}}, r"densities: '\*\.weight' must be a number; got 'all'"),
        ({"densities": "erk", "scope": "global"}, "densities of single tensors need scope='tensor'"),
        ({"rule": "magic:every=3"}, "rule must be one of edge-popup, .*; got 'magic:every=3'"),
        ({"density": "0.3"}, "density must be a number; got '0.3'"),
        ({"scope": "layer"}, "scope must be one of tensor, global; got 'layer'"),
        ({"init": "orthogonal"}, "init must be one of own, .*, kaiming-normal, kaiming-sign; got 'orthogonal'"),
        ({"score_init": "zero"}, "score_init must be one of"),
        ({"qk_scale": "large"}, "qk_scale must be a positive number or auto; got 'large'"),
        ({"qk_scale": 0.0}, "qk_scale must be a positive number or auto; got 0.0"),
        ({"factors": {"*": 0.0}}, r"factors: '\*' must be a positive number; got 0.0"),
        ({"factors": {}}, r"factors must be none, or a number per name or pattern; got \{\}"),
        ({"factors": "some"}, "factors must be none, or a number per name or pattern; got 'some'"),
        ({"output_gain": -1.0}, "output_gain must be a positive number; got -1.0"),
        ({"output_gain": float("inf")}, "output_gain must be a positive number; got inf"),
    ],
    ids=str,
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        Policy(**settings)
    assert "\n" not in str(caught.value)
