import pytest
import torch
from torch import Tensor, nn

from strongticket.models.attention import Attention, causal_mask


def random_attention(
    H: int = 2, d: int = 6, n: int = 5, m: int = 3, d_out: int = 4, *, bias: bool = True, seed: int = 0
) -> Attention:
    g = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    return Attention(
        draw(H, d + bias, n), draw(H, d, n), draw(H, d, m), draw(H, m, d_out), draw(d_out) if bias else None
    )


def test_a_plain_loop_over_tokens_and_heads_gives_the_same() -> None:
    """Section 2.2, spelled out."""
    attention = random_attention()
    x = torch.randn(7, 6, dtype=torch.float64)
    attends = torch.rand(7, 7) < 0.5
    attends.fill_diagonal_(True)
    expected = torch.zeros(7, 4, dtype=torch.float64)
    for i in range(7):
        for j in range(2):
            q = torch.cat([x[i], torch.ones(1, dtype=torch.float64)]) @ attention.query[j]
            scores = (x @ attention.key[j]) @ q / 5**0.5
            weights = attends[i] * scores.exp() / (attends[i] * scores.exp()).sum()
            expected[i] += weights @ x @ attention.value[j] @ attention.output[j]
    torch.testing.assert_close(attention(x, attends), expected + attention.output_bias)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("masked", [None, "causal", "padding"])
def test_equals_torch(bias: bool, masked: str | None) -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(8, 2, bias=bias, batch_first=True, dtype=torch.float64)
    if bias:
        nn.init.normal_(module.in_proj_bias)
        nn.init.normal_(module.out_proj.bias)
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    attends = {"causal": causal_mask(5), "padding": torch.tensor([True, True, False, True, False]).expand(5, 5)}.get(
        masked or ""
    )
    expected, _ = module(x, x, x, attn_mask=~attends if attends is not None else None)
    torch.testing.assert_close(Attention.from_torch(module)(x, attends), expected)


@pytest.mark.parametrize("bias", [True, False])
def test_merged_form_is_the_same_function(bias: bool) -> None:
    attention = random_attention(bias=bias)
    x = torch.randn(2, 9, 6, dtype=torch.float64)
    merged = attention.merged()
    torch.testing.assert_close(merged(x, causal_mask(9)), attention(x, causal_mask(9)))
    torch.testing.assert_close(merged.weights(x).sum(dim=-1), torch.ones(2, 2, 9, dtype=torch.float64))


def test_each_batch_may_have_a_mask_of_its_own() -> None:
    attention = random_attention()
    x = torch.randn(2, 5, 6, dtype=torch.float64)
    masks = torch.stack([causal_mask(5), torch.ones(5, 5, dtype=torch.bool)])
    together = attention(x, masks)
    for i in range(2):
        torch.testing.assert_close(together[i], attention(x[i], masks[i]))


def test_a_key_bias_drops_out() -> None:
    torch.manual_seed(1)
    module = nn.MultiheadAttention(4, 2, batch_first=True, dtype=torch.float64)
    x = torch.randn(1, 3, 4, dtype=torch.float64)
    before, _ = module(x, x, x)
    with torch.no_grad():
        module.in_proj_bias[4:8] += 3.0
    torch.testing.assert_close(module(x, x, x)[0], before)
    torch.testing.assert_close(Attention.from_torch(module)(x), before)


def test_a_token_that_attends_to_nothing_is_an_error() -> None:
    attends = causal_mask(3)
    attends[1] = False
    with pytest.raises(ValueError, match="every token must attend to at least one"):
        random_attention()(torch.zeros(3, 6, dtype=torch.float64), attends)
    with pytest.raises(ValueError, match=r"attends must be bool; got torch.int64"):
        random_attention()(torch.zeros(3, 6, dtype=torch.float64), causal_mask(3).long())


def test_shapes_that_do_not_fit_are_named() -> None:
    with pytest.raises(ValueError, match=r"attention needs query .* got \(1, 3, 2\), \(1, 5, 2\)"):
        Attention(torch.zeros(1, 3, 2), torch.zeros(1, 5, 2), torch.zeros(1, 5, 2), torch.zeros(1, 2, 2))


@pytest.mark.parametrize("options", [{"add_bias_kv": True}, {"add_zero_attn": True}, {"kdim": 3}])
def test_torch_modules_beyond_the_theory_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"the theory does not cover|must have the same width"):
        Attention.from_torch(nn.MultiheadAttention(4, 2, **options))  # type: ignore[arg-type]
