import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.language_tickets import LENGTH, SEQUENCES, language_ticket, recorded_ticket
from torch import Tensor, nn

from strongticket import StrongTicketError, Ticket, construct_linear
from strongticket.data.text import Text, load_text
from strongticket.files import Json
from strongticket.learn import evaluate
from strongticket.learn.evaluate import evaluate_ticket, load_model, validation_loss
from strongticket.learn.recorded import recorded_of
from strongticket.learn.step import Precision
from strongticket.models.gpt2 import GPT2, gpt2_config


@pytest.fixture(scope="module")
def text() -> Text:
    return load_text("sample")


@pytest.fixture(scope="module")
def ticket(text: Text) -> Ticket:
    return recorded_ticket(text)


def test_validation_loss_is_the_mean_over_all_windows() -> None:
    model, tokens = GPT2(gpt2_config("nano"), seed=3), np.arange(500, dtype=np.uint16) % 256
    loss = validation_loss(model, tokens, length=30, sequences=5, device="cpu")
    whole = torch.from_numpy(tokens[: 16 * 30 + 1].astype(np.int64))
    with torch.no_grad():
        logits = model(whole[:-1].view(16, 30)).double()
    expected = nn.functional.cross_entropy(logits.flatten(0, 1), whole[1:])
    assert loss == pytest.approx(float(expected), abs=1e-6)


def test_a_short_last_batch_weighs_by_its_windows() -> None:
    def first_token(inputs: Tensor, targets: Tensor) -> Tensor:
        return inputs[:, 0].float().mean()

    tokens = np.arange(71, dtype=np.uint16)
    expected = sum(range(0, 70, 10)) / 7
    for sequences in (1, 2, 3, 7, 100):
        assert validation_loss(first_token, tokens, length=10, sequences=sequences, device="cpu") == expected


def test_losses_are_added_in_float64() -> None:
    """A float32 sum of these would lose the small ones."""

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        return torch.tensor(2.0**24 if inputs[0, 0] == 0 else 1.0)

    tokens = np.arange(101, dtype=np.uint16)
    assert validation_loss(loss, tokens, length=1, sequences=1, device="cpu") == (2.0**24 + 99) / 100


def test_dropout_is_off_and_comes_back() -> None:
    model = GPT2(gpt2_config("nano", dropout=0.5))
    tokens = np.arange(200, dtype=np.uint16)
    first, second = (validation_loss(model, tokens, length=20, sequences=4, device="cpu") for _ in range(2))
    assert first == second
    assert model.training
    assert not next(model.parameters()).grad_fn


def test_a_bad_precision_is_named() -> None:
    how: dict[str, Any] = {"length": 4, "sequences": 2, "device": "cpu", "precision": "float16"}
    with pytest.raises(ValueError, match="precision"):
        validation_loss(GPT2(gpt2_config("nano")), np.arange(50, dtype=np.uint16), **how)


def test_the_file_alone_gives_the_recorded_loss_bit_for_bit(ticket: Ticket, text: Text, tmp_path: Path) -> None:
    ticket.save(tmp_path / "found.ticket")
    result = evaluate_ticket(Ticket.load(tmp_path / "found.ticket"), text)
    recorded = recorded_of(ticket)
    assert recorded is not None
    assert result.loss == result.recorded_loss == recorded.validation_loss
    assert result.reproduced
    assert (result.length, result.sequences, result.precision) == (LENGTH, SEQUENCES, "float32")
    assert result.perplexity == math.exp(result.loss)
    # One token is one byte here.
    assert result.bits_per_byte == pytest.approx(result.loss / math.log(2))
    assert result.tokens == (len(text.valid) - 1) // LENGTH * LENGTH


def test_bits_per_byte_are_those_of_the_tokens_whatever_a_cache_says(
    ticket: Ticket, text: Text, tmp_path: Path
) -> None:
    """Releases before this one kept the number of bytes in tokens.json, where half of it doubled the result."""
    sample = load_text("sample", splits=["valid"], cache=tmp_path)
    (about,) = (tmp_path / "tokens").glob("*/tokens.json")
    content = json.loads(about.read_bytes())
    content["splits"]["valid"]["text_bytes"] = len(sample.valid) // 2
    about.write_text(json.dumps(content))
    claimed = evaluate_ticket(ticket, load_text("sample", splits=["valid"], cache=tmp_path))
    assert claimed.bits_per_byte == evaluate_ticket(ticket, text).bits_per_byte


def test_other_batches_reproduce_the_loss_up_to_rounding(ticket: Ticket, text: Text) -> None:
    result = evaluate_ticket(ticket, text, sequences=5)
    assert result.reproduced
    assert result.recorded_loss is not None
    assert abs(result.loss - result.recorded_loss) < 1e-5


def test_a_ticket_does_not_decide_how_much_memory_its_loss_takes(
    ticket: Ticket, text: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file may record any number of sequences per forward pass; the loss is the same up to rounding."""
    greedy = language_ticket({"search": dict(ticket.metadata["search"], sequences=10**9)})
    assert evaluate_ticket(greedy, text).sequences == (1 << 17) // LENGTH
    monkeypatch.setattr(evaluate, "_MOST_TOKENS", 6 * LENGTH - 1)
    steps: list[int] = []
    result = evaluate_ticket(greedy, text, progress=lambda done, total: steps.append(done))
    assert result.sequences == steps[0] == steps[1] - steps[0] == 5
    assert result.reproduced
    assert evaluate_ticket(greedy, text, sequences=7).sequences == 7, "a user may have more"


def test_another_loss_than_recorded_is_said(ticket: Ticket, text: Text) -> None:
    changed = dict(ticket.metadata["search"], validation_loss=1.25)
    result = evaluate_ticket(language_ticket({"search": changed}), text)
    assert (result.recorded_loss, result.reproduced) == (1.25, False)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_loss_is_reproduced_up_to_the_rounding_of_its_precision(
    ticket: Ticket, text: Text, precision: Precision
) -> None:
    search = ticket.metadata["search"]
    how: dict[str, Any] = {"length": LENGTH, "sequences": SEQUENCES, "device": "cpu"}
    measured = validation_loss(load_model(ticket, "cpu"), text.valid, **how, precision=precision)
    # 0.009 is less than what seeds differ by, and more than any rounding.
    for off, reproduced in ((0, True), (5e-5, True), (-0.009, False), (0.004, False)):
        changed = dict(search, precision=precision, validation_loss=measured + off)
        found = evaluate_ticket(language_ticket({"search": changed}), text)
        assert (found.precision, found.reproduced) == ("float32", reproduced)


def test_other_text_and_other_lengths_are_not_compared(ticket: Ticket, text: Text) -> None:
    for result in (
        evaluate_ticket(ticket, load_text("sample", splits=["train"]), "train"),
        evaluate_ticket(ticket, text, length=32),
    ):
        assert (result.recorded_loss, result.reproduced) == (None, None)


def test_the_validation_text_alone_is_enough_to_compare(ticket: Ticket) -> None:
    assert evaluate_ticket(ticket, load_text("sample", splits=["valid"])).reproduced


def test_a_ticket_without_a_record_is_evaluated_over_its_whole_context(text: Text) -> None:
    result = evaluate_ticket(language_ticket(), text)
    assert (result.length, result.recorded_loss) == (128, None)
    assert result.loss == pytest.approx(math.log(256), abs=0.2)


def test_progress_counts_windows(ticket: Ticket, text: Text) -> None:
    calls: list[tuple[int, int]] = []
    evaluate_ticket(ticket, text, progress=lambda done, total: calls.append((done, total)))
    windows = (len(text.valid) - 1) // LENGTH
    assert calls[0] == (SEQUENCES, windows)
    assert calls[-1] == (windows, windows)


def test_a_network_that_is_no_language_model_is_refused(text: Text) -> None:
    other = construct_linear(torch.tensor([[0.2]]), hidden_width=8, seed=0)
    with pytest.raises(StrongTicketError, match="family 'linear'; text needs a gpt2"):
        evaluate_ticket(other, text)


def test_another_vocabulary_is_refused(text: Text) -> None:
    with pytest.raises(StrongTicketError, match=r"the model has 300 tokens, the tokenizer bytes 256"):
        evaluate_ticket(language_ticket(vocabulary=300), text)


def test_another_tokenizer_of_the_same_size_is_refused(ticket: Ticket, text: Text) -> None:
    changed = dict(ticket.metadata["search"], tokenizer={"name": "mine", "vocabulary": 256, "digest": "0" * 64})
    with pytest.raises(StrongTicketError, match=r"tokenizer bytes is not the one .* trained with .'mine'"):
        evaluate_ticket(language_ticket({"search": changed}), text)


def test_a_loss_without_meaning_is_an_error(text: Text) -> None:
    with pytest.raises(StrongTicketError, match="does not predict text"):
        evaluate_ticket(language_ticket(gain=1e6), text)


def test_windows_longer_than_the_model_sees_are_refused(ticket: Ticket, text: Text) -> None:
    with pytest.raises(ValueError, match="sees at most 128 tokens; got length 129"):
        evaluate_ticket(ticket, text, length=129)


@pytest.mark.parametrize(
    "changes",
    [
        {"length": 0},
        {"length": "64"},
        {"sequences": True},
        {"validation_loss": None},
        {"precision": "float16"},
        {"tokenizer": "bytes"},
        {"tokenizer": {"name": "bytes"}},
        {"digests": {}},
        {"digests": None},
    ],
)
def test_records_that_are_nonsense_are_refused(ticket: Ticket, changes: dict[str, Json]) -> None:
    nonsense = language_ticket({"search": {**ticket.metadata["search"], **changes}})
    with pytest.raises(StrongTicketError, match="record of its search is invalid"):
        recorded_of(nonsense)


def test_a_record_that_is_no_object_is_refused() -> None:
    with pytest.raises(StrongTicketError, match="record of its search is invalid"):
        recorded_of(language_ticket({"search": [1]}))
