import pytest
import torch

from strongticket.models.gpt2 import GPT2, gpt2_config
from strongticket.models.gpt2_decoder import Decoder


@pytest.mark.parametrize(
    "changes",
    [{}, {"tied": False, "bias": False}, {"activation": "relu", "output_gain": 4.0}, {"dropout": 0.5}],
    ids=["plain", "untied", "relu", "dropout"],
)
@pytest.mark.parametrize("prompt", [1, 5, 60])
def test_logits_are_those_of_the_model(changes: dict[str, object], prompt: int) -> None:
    torch.manual_seed(0)
    model = GPT2(gpt2_config("nano", n_layers=3, context=64, **changes), seed=2)
    for parameter in model.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))  # biases and norms as well
    tokens = torch.randint(256, (64,)).tolist()
    with torch.no_grad():
        expected = model.eval()(torch.tensor([tokens]))[0]  # (T, V)
    decoder = Decoder(model.train())
    fed = [decoder.feed(tokens[:prompt]), *(decoder.feed([token]) for token in tokens[prompt:])]
    torch.testing.assert_close(torch.stack(fed), expected[prompt - 1 :], rtol=1e-4, atol=1e-4)
    assert decoder.length == 64
    with pytest.raises(ValueError, match="64 in all; got 1 after 64"):
        decoder.feed([0])


def test_room_for_few_tokens_takes_no_memory_for_more() -> None:
    decoder = Decoder(GPT2(gpt2_config("nano")), room=4)
    decoder.feed([1, 2, 3])
    assert {kept.shape[0] for kept in decoder._past} == {4}
    decoder.feed([4])
    with pytest.raises(ValueError, match="4 in all; got 1 after 4"):
        decoder.feed([5])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_graph_gives_what_the_model_gives() -> None:
    model = GPT2(gpt2_config("nano"), seed=2, device="cuda").eval()
    tokens = torch.randint(256, (20,), generator=torch.Generator().manual_seed(0)).tolist()
    with torch.no_grad():
        expected = model(torch.tensor([tokens], device="cuda"))[0, 4:]
    decoder = Decoder(model, room=20)
    fed = [decoder.feed(tokens[:5]), *(decoder.feed([token]) for token in tokens[5:])]
    torch.testing.assert_close(torch.stack(fed), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("tokens", [[], [1, 2]])
def test_only_a_prompt_has_several_tokens(tokens: list[int]) -> None:
    decoder = Decoder(GPT2(gpt2_config("nano")))
    decoder.feed([1, 2, 3])
    with pytest.raises(ValueError, match="single tokens"):
        decoder.feed(tokens)
