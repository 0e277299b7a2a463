import json
import re
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.command import Run
from tests.language_tickets import LENGTH, language_ticket, recorded_ticket

from strongticket import StrongTicketError
from strongticket.cli.terminal import spelled_out
from strongticket.data.text import load_text
from strongticket.data.tokenizer import find_tokenizer
from strongticket.learn import evaluate
from strongticket.learn.evaluate import faster_run
from strongticket.learn.generate import decode_stream, generate_tokens
from strongticket.learn.recorded import tokenizer_of
from strongticket.models.gpt2 import GPT2, gpt2_config

CONTEXT = 128
PACE = (
    r"{} tokens, the first after [0-9.]+ s(, then [0-9,.]+ per second)?, "
    r"run {}: weights 0.[0-9] MB, the process [0-9,.]+ MB at most.\n"
)


@pytest.fixture(scope="module")
def model() -> GPT2:
    return GPT2(gpt2_config("nano", output_gain=3.0), seed=1).eval()


@pytest.fixture(scope="module")
def ticket_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ticket") / "found.ticket"
    recorded_ticket(load_text("sample")).save(path)
    return path


def greedy(model: GPT2, prompt: list[int], tokens: int) -> list[int]:
    seen = list(prompt)
    with torch.no_grad():
        for _ in range(tokens):
            seen.append(int(model(torch.tensor([seen[-CONTEXT:]]))[0, -1].argmax()))
    return seen[len(prompt) :]


@pytest.mark.parametrize("prompt", [[65], list(range(200))])
def test_temperature_0_and_top_1_take_the_likeliest(model: GPT2, prompt: list[int]) -> None:
    expected = greedy(model, prompt, 12)
    assert list(generate_tokens(model, prompt, tokens=12, temperature=0)) == expected
    assert list(generate_tokens(model, prompt, tokens=12, temperature=3.0, top_k=1)) == expected


def test_a_seed_fixes_the_text(model: GPT2) -> None:
    first, again, other = (list(generate_tokens(model, [65], tokens=40, seed=seed)) for seed in (3, 3, 4))
    assert first == again != other


def test_draws_follow_the_distribution(model: GPT2) -> None:
    """Against the exact probabilities of the first token, by a chi-squared statistic with 4 degrees of freedom."""
    with torch.no_grad():
        best, tokens = (model(torch.tensor([[65]]))[0, -1].double() / 0.7).topk(5)
    expected = 400 * best.softmax(dim=0)
    drawn = [next(generate_tokens(model, [65], tokens=1, temperature=0.7, top_k=5, seed=seed)) for seed in range(400)]
    counts = torch.tensor([drawn.count(int(token)) for token in tokens], dtype=torch.float64)
    assert counts.sum() == 400
    assert ((counts - expected) ** 2 / expected).sum() < 25  # 5e-5 of fair draws exceed it


@pytest.mark.parametrize(
    ("prompt", "settings", "message"),
    [([], {}, "at least one token"), ([1], {"temperature": -1.0}, "temperature"), ([1], {"top_k": 0}, "top_k")],
)
def test_bad_settings_are_named(model: GPT2, prompt: list[int], settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        next(generate_tokens(model, prompt, **settings))  # type: ignore[arg-type]


@given(st.text())
def test_characters_come_out_whole(text: str) -> None:
    tokenizer = find_tokenizer("bytes")
    text = text.encode("utf-8", "replace").decode()
    pieces = list(decode_stream(tokenizer, tokenizer.encode(text)))
    assert pieces == list(text)


def test_bytes_that_are_no_character_are_marked() -> None:
    tokens = [*b"a\xffb", *"\N{EURO SIGN}".encode()[:2]]
    assert "".join(decode_stream(find_tokenizer("bytes"), tokens)) == "a\ufffdb\ufffd"


def test_generate_writes_prompt_and_text(run: Run, ticket_file: Path) -> None:
    arguments = ("generate", ticket_file, "--prompt", "The river né", "--tokens", 30, "--seed", 5)
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("The river né")
    assert re.fullmatch(PACE.format(30, "dense"), done.stderr)
    assert run(*arguments).stdout == done.stdout
    assert run(*arguments[:-1], 6).stdout != done.stdout
    told = json.loads(run(*arguments, "--json").stdout)
    assert done.stdout == "The river né" + spelled_out(told["text"]) + "\n"
    assert (told["tokens"], told["run"], told["weight_bytes"] // 1000) == (30, "dense", 492)
    assert told["tokens_per_second"] > 0 < told["first_token_seconds"]
    assert told["peak_bytes"] > 10**7


def test_signed_constants_are_generated_from_bits(run: Run, tmp_path: Path) -> None:
    text = load_text("sample")
    recorded_ticket(text, init="sign").save(path := tmp_path / "signed.ticket")
    told = [
        json.loads(run("generate", path, "--run", how, "--tokens", 20, "--json").stdout) for how in ("bits", "dense")
    ]
    assert told[0]["text"] == told[1]["text"]
    assert told[0]["weight_bytes"] < told[1]["weight_bytes"] / 4  # columns are padded, or it would be 16
    assert re.fullmatch(PACE.format(1, "from bits"), run("generate", path, "--run", "bits", "--tokens", 1).stderr)
    done = run("evaluate", path, "--data", "sample", "--run", "bits")
    assert "reproduced (difference" in done.stdout, done.stderr


def test_large_signed_tickets_run_from_bits_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    text = load_text("sample")
    signed, normal = (recorded_ticket(text, init=init) for init in ("sign", "own"))
    assert faster_run(signed, "cpu") == "dense"  # so small that it fits any cache
    monkeypatch.setattr(evaluate, "MANY_WEIGHTS", signed.numel)
    assert [faster_run(signed, "cpu"), faster_run(normal, "cpu"), faster_run(signed, "cuda")] == [
        "bits",
        "dense",
        "dense",
    ]


def test_other_weights_from_bits_are_refused_in_one_line(run: Run, ticket_file: Path) -> None:
    done = run("generate", ticket_file, "--run", "bits")
    assert done.returncode == 1
    assert "has normal weights. Search with --init sign" in done.stderr
    assert done.stderr.count("\n") == 1


def test_control_characters_are_spelled_out(run: Run, ticket_file: Path) -> None:
    done = run("generate", ticket_file, "--tokens", 300, "--temperature", 2, "--top-k", 0)
    raw = json.loads(run("generate", ticket_file, "--tokens", 300, "--temperature", 2, "--top-k", 0, "--json").stdout)
    assert any(ord(char) < 32 and char not in "\n\t" for char in raw["text"])
    assert not any(ord(char) < 32 and char not in "\n\t" for char in done.stdout)
    assert "\\x" in done.stdout


def test_an_empty_prompt_works(run: Run, ticket_file: Path) -> None:
    done = run("generate", ticket_file, "--tokens", 5)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout) > 1


def test_a_long_prompt_is_cut_and_that_is_said(run: Run, ticket_file: Path) -> None:
    done = run("generate", ticket_file, "--prompt", "x" * 500, "--tokens", 3, "--temperature", 0)
    assert done.stderr.startswith(f"The prompt has 500 tokens; the model sees the last {CONTEXT} of them.\n")
    cut = run("generate", ticket_file, "--prompt", "x" * CONTEXT, "--tokens", 3, "--temperature", 0)
    assert re.fullmatch(PACE.format(3, "dense"), cut.stderr)
    assert done.stdout.lstrip("x") == cut.stdout.lstrip("x")


def test_a_tokenizer_of_another_size_is_refused(run: Run, tmp_path: Path) -> None:
    language_ticket(vocabulary=300).save(tmp_path / "odd.ticket")
    done = run("generate", tmp_path / "odd.ticket", "--tokenizer", "bytes")
    assert done.returncode == 1
    assert "the model has 300 tokens, the tokenizer bytes 256" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_ticket_that_names_no_tokenizer_asks_for_one(run: Run, tmp_path: Path) -> None:
    language_ticket().save(tmp_path / "bare.ticket")
    done = run("generate", tmp_path / "bare.ticket")
    assert done.returncode == 1
    assert "give --tokenizer" in done.stderr
    assert run("generate", tmp_path / "bare.ticket", "--tokenizer", "bytes", "--tokens", 2).returncode == 0


def test_a_tokenizer_known_only_as_a_folder_is_asked_for() -> None:
    search = dict(recorded_ticket(load_text("sample")).metadata["search"])
    search["tokenizer"] = {"name": "my-words", "vocabulary": 256, "digest": "0" * 64}
    with pytest.raises(StrongTicketError, match=r"trained with the tokenizer 'my-words'; give --tokenizer"):
        tokenizer_of(language_ticket({"search": search}), 256, None)


def test_evaluate_says_that_the_loss_is_reproduced(run: Run, ticket_file: Path) -> None:
    done = run("evaluate", ticket_file, "--data", "sample", "--device", "cpu")
    assert (done.returncode, done.stderr) == (0, "")
    assert "reproduced (difference 0.0e+00)" in done.stdout
    assert f"sequences of {LENGTH}" in done.stdout
    told = json.loads(run("evaluate", ticket_file, "--data", "sample", "--device", "cpu", "--json").stdout)
    assert told["reproduced"] is True
    assert f"loss            {told['loss']:.6f}" in done.stdout
    other = run("evaluate", ticket_file, "--data", "sample", "--device", "cpu", "--length", 32)
    assert "none for this text and length" in other.stdout


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_evaluate_fails_if_the_loss_is_another_than_recorded(run: Run, tmp_path: Path, more: tuple[str, ...]) -> None:
    search = dict(recorded_ticket(load_text("sample")).metadata["search"], validation_loss=1.25)
    language_ticket({"search": search}).save(tmp_path / "other.ticket")
    done = run("evaluate", tmp_path / "other.ticket", "--data", "sample", "--device", "cpu", *more)
    assert done.returncode == 1
    assert "NOT reproduced" in done.stdout or json.loads(done.stdout)["reproduced"] is False


@pytest.mark.parametrize("arguments", [("generate", "--tokens", 1), ("evaluate", "--data", "sample")])
def test_small_models_take_one_thread_of_a_cpu(run: Run, ticket_file: Path, arguments: tuple[object, ...]) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        command, *options = arguments
        assert run(command, ticket_file, *options, "--device", "cpu").returncode == 0
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--data", "nowhere"), 1, "nowhere does not exist; data must be sample, wikitext-103 or a folder"),
        (("--data", "sample", "--split", "test"), 1, "has no test text; found train.txt.xz, valid.txt.xz"),
        (("--data", "sample", "--tokenizer", "nowhere"), 1, "must be bytes, gpt2 or a folder"),
        (("--data", "sample", "--length", 100_000), 1, "the valid text has 38,758 tokens, but one sequence"),
        (("--data", "sample", "--length", 129), 1, "sees at most 128 tokens; got length 129"),
        *(
            (("--data", "sample", "--device", name), 2, f"--device must be cpu or cuda; got '{name}'. CUDA_VISIBLE")
            for name in ("abacus", "mps", "meta", "cpu:0", "cuda:0", "cuda:99")
        ),
        (("--data", "sample", "--split", "dev"), 2, "'dev' is not one of"),
    ],
)
def test_bad_input_is_one_clear_line(
    run: Run, ticket_file: Path, arguments: tuple[object, ...], code: int, message: str
) -> None:
    done = run("evaluate", ticket_file, *arguments)
    assert done.returncode == code
    assert message in " ".join(done.stderr.replace("│", " ").split())
    if code == 1:
        assert done.stderr.startswith("Error: ")
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["evaluate", "generate"])
def test_help_has_an_example(run: Run, command: str) -> None:
    done = run(command, "-h")
    assert done.returncode == 0
    assert f"Example: strongticket {command}" in done.stdout
    assert "--json" in done.stdout
