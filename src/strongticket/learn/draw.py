"""How a policy draws the weights and the first scores of a tensor."""

import math

import torch
from torch import Tensor

from strongticket.learn.density import first_match
from strongticket.learn.policy import Policy
from strongticket.learn.tensors import ModelTensor
from strongticket.ops.rng import Distribution, random_weights, round_scale


def weight_distribution(tensor: ModelTensor, policy: Policy) -> tuple[Distribution, float]:
    """Return the distribution of a masked or frozen tensor's weights, and its scale for `random_weights`."""
    distribution, scale = _initial_distribution(tensor, policy)
    if tensor.is_query_or_key:
        scale *= _query_key_scale(tensor, policy)
    if not isinstance(policy.factors, str):
        scale *= first_match(tensor.name, policy.factors, 1.0)
    if policy.rescale and policy.treatment(tensor.group) == "masked":
        scale /= math.sqrt(policy.density)
    return distribution, round_scale(scale)


def _initial_distribution(tensor: ModelTensor, policy: Policy) -> tuple[Distribution, float]:
    if policy.init == "xavier":
        return "uniform", math.sqrt(6 / (tensor.fan_in + tensor.fan_out))
    if policy.init == "kaiming":
        return "uniform", math.sqrt(6 / tensor.fan_in)
    if policy.init == "kaiming-normal":
        return "normal", math.sqrt(2 / tensor.fan_in)
    if policy.init == "kaiming-sign":
        return "sign", math.sqrt(2 / tensor.fan_in)
    if policy.init == "uniform":
        return "uniform", math.sqrt(3) * tensor.std
    if policy.init in ("sign", "packed-sign"):
        return policy.init, tensor.std
    return "normal", tensor.std


def _query_key_scale(tensor: ModelTensor, policy: Policy) -> float:
    if policy.qk_scale != "auto":
        return policy.qk_scale
    if tensor.key_width is None:
        raise ValueError(
            f"qk_scale='auto' needs the width of a head for {tensor.name}, which the module does not say. "
            "Pass qk_scale as a number: the fourth root of that width, or 1."
        )
    # Two square roots round alike on every machine; a fourth root may not.
    return math.sqrt(math.sqrt(tensor.key_width))


def draw_scores(tensor: ModelTensor, policy: Policy, seed: int, device: torch.device) -> Tensor:
    """Draw a tensor's first scores from the stream named after it."""
    width = 1 / math.sqrt(tensor.fan_in)
    if policy.score_init == "constant":
        return torch.full(tensor.shape, width, device=device)
    distributions: dict[str, tuple[Distribution, float]] = {
        "kaiming": ("uniform", width),
        "normal": ("normal", width / math.sqrt(3)),
        "uniform": ("uniform", 1.0),
    }
    return random_weights(seed, f"{tensor.name}.scores", tensor.shape, *distributions[policy.score_init], device=device)
