import pytest
import torch
from torch import nn

from strongticket.models.attention import causal_mask
from strongticket.models.transformer import Block, FeedForward, Transformer, random_transformer


def test_feedforward_equals_torch_layers() -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(3, 5), nn.Linear(5, 4, bias=False), nn.Linear(4, 2)]
    network = FeedForward([layer.weight for layer in layers], [layer.bias for layer in layers])
    x = torch.randn(7, 3)
    expected = layers[2](torch.relu(layers[1](torch.relu(layers[0](x)))))
    torch.testing.assert_close(network(x), expected)


def test_layers_must_fit() -> None:
    with pytest.raises(ValueError, match="one returns 5 numbers, the next takes 4"):
        FeedForward([torch.zeros(5, 3), torch.zeros(2, 4)])
    with pytest.raises(ValueError, match="a bias or None for each; got 1 and 2"):
        FeedForward([torch.zeros(5, 3)], [None, None])


def test_block_is_section_3_3() -> None:
    target = random_transformer(1, 4, key_width=3, generator=torch.Generator().manual_seed(0))
    (block,) = target.blocks
    assert isinstance(block, Block)
    x = torch.randn(6, 4, dtype=torch.float64)
    z = block.attention(x, causal_mask(6)) + x
    torch.testing.assert_close(target(x, causal_mask(6)), block.feedforward(z) + z)


def test_blocks_follow_each_other() -> None:
    target = random_transformer(3, 2, key_width=4, generator=torch.Generator().manual_seed(0))
    x = torch.randn(5, 2, dtype=torch.float64)
    y = x
    for block in target.blocks:
        y = block(y)
    torch.testing.assert_close(target(x), y)
    assert isinstance(target, Transformer)


def test_normalised_targets_have_spectral_norm_one() -> None:
    target = random_transformer(2, 3, key_width=5, generator=torch.Generator().manual_seed(1))
    for parameter in target.parameters():
        norms = torch.linalg.matrix_norm(parameter, ord=2)
        torch.testing.assert_close(norms, torch.ones_like(norms))
