"""`strongticket construct` and `strongticket compare`, as a user runs them."""

import copy
import json
import lzma
import math
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import torch
from click.testing import Result
from tests.command import Run
from tests.pretrained.small_models import (
    VOCABULARY,
    ZOO,
    from_zoo,
    inputs,
    make_bert,
    make_gpt2,
    make_roberta,
    output_of,
    randomize,
    small,
    what,
)
from tests.waiting import wait_until
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    Dinov2Config,
    ElectraConfig,
    FalconConfig,
    GPTJConfig,
    MixtralConfig,
    Phi3Config,
    PreTrainedTokenizerFast,
)
from typer.testing import CliRunner

from strongticket import Ticket
from strongticket.cli.main import app
from strongticket.errors import MissingExtraError, StrongTicketError
from strongticket.files import lock
from strongticket.pretrained import attach, construct_pretrained, families, predict
from strongticket.pretrained.compare import compare
from strongticket.pretrained.load import load_model, load_tokenizer
from strongticket.pretrained.target import Target
from strongticket.pretrained.text import read_sentences

WORDS = [f"word{i}" for i in range(VOCABULARY - 2)]
TEXT = "= Title =\n\nword1 word2 word3 word4. Word5 word6 word7! Word8 word9 word10 word11?\n" * 9


def word_tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]")


def save(model: nn.Module, folder: Path) -> Path:
    """Lay a model out as Hugging Face does, with a tokenizer of one token a word."""
    word_tokenizer().save_pretrained(folder)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(small("bert"), tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(small("gpt2"), tmp_path_factory.mktemp("gpt2"))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt.xz"
    path.write_bytes(lzma.compress(TEXT.encode()))
    return path


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "strongticket", *map(str, arguments)]


def test_construct_writes_the_ticket_and_says_what_it_is(bert: Path, tmp_path: Path) -> None:
    out = tmp_path / "small.ticket"
    arguments = ("construct", "--model", bert, "--items", 6, "--seed", 5, "--out", out, "--workers", 1)
    done = invoke(*arguments, "--json")
    assert done.exit_code == 0, done.output
    ticket, told = Ticket.load(out), json.loads(done.stdout)
    assert ticket == construct_pretrained(small("bert"), items=6, seed=5)
    assert (told["identity"], told["file_bytes"]) == (ticket.identity, out.stat().st_size)
    assert [part["part"] for part in told["parts"]] == ["layer.0.attention", "layer.1.attention"]
    assert [path.name for path in tmp_path.iterdir()] == ["small.ticket"]
    again = invoke(*arguments)
    assert again.exit_code == 0
    assert f"identity {ticket.identity}" in again.stdout
    for other, said in (
        (("--items", 7), "was made with items 6, not 7"),
        (("--what", "attention+mlp"), "was made with what attention, not attention+mlp"),
    ):
        refused = invoke(*arguments, *other)
        assert isinstance(refused.exception, StrongTicketError)
        assert said in str(refused.exception)


def heed_interrupts() -> None:
    """A job in the background ignores them, and its children would too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_a_run_killed_and_then_interrupted_is_finished_by_the_same_command(tmp_path: Path) -> None:
    model = randomize(make_bert(hidden_size=64, num_attention_heads=16, num_hidden_layers=3))
    folder, out = save(model, tmp_path / "model"), tmp_path / "x.ticket"
    arguments = ("construct", "--model", folder, "--items", 21, "--out", out, "--workers", 1)
    partial = tmp_path / "x.ticket.partial"

    def finished() -> int:
        return len(list(partial.glob("*.npz")))

    def stop_by(how: signal.Signals) -> str:
        before = finished()
        stopped = subprocess.Popen(command(*arguments), stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts)
        wait_until(lambda: finished() > before)
        stopped.send_signal(how)
        _, told = stopped.communicate(timeout=300)
        assert stopped.returncode == (-how if how is signal.SIGKILL else 130)
        assert before < finished() < 48, "the run was stopped half-way"
        assert not out.exists()
        return told

    stop_by(signal.SIGKILL)
    told = stop_by(signal.SIGINT)
    assert told.splitlines()[-1] == "Stopped; the same command resumes."  # behind progress, if the machine is slow
    assert invoke(*arguments).exit_code == 0
    assert Ticket.load(out) == construct_pretrained(model, items=21)
    assert not partial.exists()
    partial.mkdir()  # as if it had been killed just after it wrote the ticket
    with open(partial / "lock", "ab") as file:
        lock(file, partial)  # another run is at work there
        assert invoke(*arguments).exit_code == 0
        assert partial.exists()
    (tmp_path / ".strongticket-0123.part").mkdir()  # as if it had been killed while it removed the folder
    assert invoke(*arguments).exit_code == 0
    assert set(tmp_path.iterdir()) == {folder, out}


def test_interrupted_before_the_first_head_is_done_nothing_is_kept(tmp_path: Path) -> None:
    model = randomize(make_bert(hidden_size=128, num_attention_heads=1, num_hidden_layers=1))
    folder, out = save(model, tmp_path / "model"), tmp_path / "x.ticket"
    begun = command("construct", "--model", folder, "--items", 32, "--out", out, "--workers", 1)
    stopped = subprocess.Popen(begun, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts)
    wait_until(lambda: (tmp_path / "x.ticket.partial" / "settings.json").exists())
    stopped.send_signal(signal.SIGINT)
    _, told = stopped.communicate(timeout=300)
    assert (stopped.returncode, told.splitlines()[-1]) == (130, "Stopped; the same command resumes.")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--items", 3), "--items must be 4 to 32; got 3"),
        (("--items", 33), "--items must be 4 to 32; got 33"),
        (("--what", "mlp"), "'mlp' is not one of"),
        (("--workers", 2, "--dask", "tcp://127.0.0.1:9"), "--workers and --dask exclude each other"),
    ],
)
def test_bad_usage_is_told(bert: Path, tmp_path: Path, arguments: tuple[object, ...], said: str) -> None:
    done = invoke("construct", "--model", bert, "--out", tmp_path / "x.ticket", *arguments)
    assert done.exit_code == 2
    assert said in done.stderr
    assert not list(tmp_path.iterdir())


def test_bad_input_is_one_line_and_leaves_nothing(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    broken = copy.deepcopy(small("bert"))
    broken.encoder.layer[1].attention.self.value.weight.data[2, 3] = math.inf
    unknown = tmp_path / "nemotron"
    unknown.mkdir()
    (unknown / "config.json").write_text(json.dumps({"model_type": "nemotron", "num_attention_heads": 2}))
    other = tmp_path / "notes.txt"
    other.write_text("mine")
    cases = [
        (tmp_path / "nowhere", "x.ticket", "cannot be loaded"),
        (bert / "config.json", "x.ticket", f"is a file; a pretrained model is a folder, such as {bert}."),
        (unknown, "x.ticket", "unknown family 'nemotron'; `strongticket construct --model "),
        (save(broken, tmp_path / "broken"), "x.ticket", "layer 1's value.weight must be finite; entry (2, 3) is inf"),
        (bert, "missing/x.ticket", f"missing/x.ticket cannot be written: there is no folder {tmp_path / 'missing'}."),
        (bert, "notes.txt", "exists and is not this model's ticket"),
    ]
    before = sorted(tmp_path.rglob("*"))
    for model, out, said in cases:
        done = invoke("construct", "--model", model, "--items", 4, "--workers", 1, "--out", tmp_path / out)
        assert isinstance(done.exception, StrongTicketError | ValueError | OSError)
        assert said in str(done.exception)
        assert "\n" not in str(done.exception)
    assert sorted(tmp_path.rglob("*")) == before
    assert other.read_text() == "mine"


def test_checkpoints_without_all_tensors_are_refused(tmp_path: Path) -> None:
    model = small("bert")
    weights = {name: tensor for name, tensor in model.state_dict().items() if "layer.1.attention.self.key" not in name}
    model.save_pretrained(tmp_path, state_dict=weights)
    with pytest.raises(StrongTicketError, match=r"lacks 2 of the model's tensors \(the first is encoder"):
        load_model(str(tmp_path))


def test_missing_transformers_names_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'strongticket\[hf\]'"):
        load_model("anything")


def test_sentences_are_cut_and_counted(text: Path, tmp_path: Path) -> None:
    assert read_sentences(text, 2) == ["word1 word2 word3 word4.", "Word8 word9 word10 word11?"]
    assert len(read_sentences(text, 1000)) == 18
    for content, said in (
        (b"= Title =\nToo short.\n", "no sentence of at least 4"),
        (b"\xff\xfe\x00", r"bad\.txt is not UTF-8 \(byte 0:"),
    ):
        bad = tmp_path / "bad.txt"
        bad.write_bytes(content)
        with pytest.raises(StrongTicketError, match=said):
            read_sentences(bad, 10)
    (tmp_path / "bad.xz").write_bytes(b"not xz")
    with pytest.raises(StrongTicketError, match=r"bad\.xz cannot be unpacked"):
        read_sentences(tmp_path / "bad.xz", 10)


def test_sentences_begin_after_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes(b"\xef\xbb\xbf= A heading of five words =\nOne two three four.\n")
    assert read_sentences(tmp_path / "text.txt", 10) == ["One two three four."]


def test_sentences_of_plain_text_need_no_lzma(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("One two three four.")
    monkeypatch.setitem(sys.modules, "lzma", None)
    monkeypatch.delitem(sys.modules, "strongticket.pretrained.text")
    assert import_module("strongticket.pretrained.text").read_sentences(tmp_path / "text.txt", 10)


def test_compare_measures_what_attach_gives(bert: Path, text: Path, tmp_path: Path) -> None:
    ticket = construct_pretrained(small("bert"), items=14, what="attention+mlp")
    ticket.save(tmp_path / "x.ticket")
    done = invoke("compare", "--model", bert, "--ticket", tmp_path / "x.ticket", "--text", text, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["texts"], told["identity"]) == (18, ticket.identity)
    # By hand, a sentence at a time, which needs no padding.
    tokenizer, attached = load_tokenizer(str(bert)), attach(small("bert"), ticket)
    cosines, differences = [], []
    for sentence in read_sentences(text, 1000):
        batch = dict(tokenizer(sentence, return_tensors="pt"))
        first, second = (output_of(model, batch) for model in (small("bert"), attached))
        cosines.append(torch.cosine_similarity(first.mean(0), second.mean(0), dim=0).item())
        differences.append((first - second).abs().max().item())
    assert told["cosine"]["min"] == pytest.approx(min(cosines), abs=1e-5)
    assert told["cosine"]["mean"] == pytest.approx(sum(cosines) / len(cosines), abs=1e-5)
    assert told["largest_difference"] == pytest.approx(max(differences), rel=1e-3)
    assert 0 < told["float32_rounding"] < 1e-4
    assert [row["layer"] for row in told["attention_maps"]] == [0, 1]
    assert all(0 < row["mean_distance"] <= row["largest_distance"] < 2 for row in told["attention_maps"])
    assert [row["part"] for row in told["parts"]] == [part["part"] for part in ticket.certificate.details["parts"]]
    for row in told["parts"]:
        assert 0 < row["error"] <= row["certified"]
        assert row["largest_input"] <= row["input_norm"]


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("BERT", False, "model has no tokenizer: no file like tokenizer* or vocab* or *.model."),
        ("Llama", True, "its tokenizer cannot be loaded ("),
        # transformers makes one that knows no word.
        ("BERT", True, "the tokenizer knows nothing of '"),
    ],
)
def test_a_model_without_a_tokenizer_cannot_be_compared(
    name: str, settings: bool, said: str, text: Path, tmp_path: Path
) -> None:
    model = from_zoo(name)
    construct_pretrained(model, items=4).save(tmp_path / "x.ticket")
    model.save_pretrained(tmp_path / "model")
    if settings:
        (tmp_path / "model" / "tokenizer_config.json").write_text("{}")
    done = invoke("compare", "--model", tmp_path / "model", "--ticket", tmp_path / "x.ticket", "--text", text)
    assert isinstance(done.exception, StrongTicketError)
    assert said in str(done.exception)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_certificates_hold_in_float64_for_every_part(family: str, request: pytest.FixtureRequest) -> None:
    """Many items, so that certificates are tight, and float64, so that rounding cannot hide a broken one."""
    model = copy.deepcopy(small(family)).double()
    ticket = construct_pretrained(model, items=24, what="attention+mlp")
    tokenizer = load_tokenizer(str(request.getfixturevalue(family)))
    parts = compare(model, ticket, [" ".join(WORDS[i : i + 9]) for i in range(40)], tokenizer)["parts"]
    assert len(parts) == 6
    for row in parts:
        assert 0.001 * row["certified"] < row["error"] <= row["certified"]


def test_compare_of_a_causal_model_gives_loss_and_kl(gpt2: Path, text: Path, tmp_path: Path) -> None:
    model = small("gpt2")
    ticket = construct_pretrained(model, items=16)
    told = compare(model, ticket, read_sentences(text, 6), load_tokenizer(str(gpt2)), batch_size=4)
    tokenizer, attached = load_tokenizer(str(gpt2)), attach(model, ticket)
    losses, kls, tokens = [], [], 0
    for sentence in read_sentences(text, 6):
        ids = tokenizer(sentence, return_tensors="pt")["input_ids"]
        first, second = (output_of(m, {"input_ids": ids})[0, :-1].double().log_softmax(-1) for m in (model, attached))
        losses.append([-x.gather(1, ids[0, 1:, None]).sum().item() for x in (first, second)])
        kls.append(nn.functional.kl_div(second, first, reduction="sum", log_target=True).item())
        tokens += len(first)
    assert told["loss"]["original"] == pytest.approx(sum(a for a, _ in losses) / tokens, abs=1e-6)
    assert told["loss"]["ticket"] == pytest.approx(sum(b for _, b in losses) / tokens, abs=1e-6)
    assert told["kl"] == pytest.approx(sum(kls) / tokens, rel=1e-2, abs=1e-9)
    ticket.save(tmp_path / "x.ticket")
    shown = invoke("compare", "--model", gpt2, "--ticket", tmp_path / "x.ticket", "--text", text, "--sentences", 3)
    assert shown.exit_code == 0, shown.output
    assert "3 sentences" in shown.stdout
    assert "loss per token: original" in shown.stdout
    assert "layer.1.attention" in shown.stdout


@pytest.mark.parametrize("name", [name for name in ZOO if Target(from_zoo(name)).family.kind in ("encoder", "causal")])
def test_compare_takes_every_family_that_reads_a_text(name: str) -> None:
    """OPT's MLP, for one, gets its tokens in one list."""
    model = from_zoo(name)
    ticket = construct_pretrained(model, items=8, what=what(name))
    told = compare(model, ticket, [" ".join(WORDS[: 4 + i]) for i in range(3)], word_tokenizer())
    assert told["tokens"] == 4 + 5 + 6
    assert {part["part"] for part in told["parts"]} == Target(model, what(name)).parts.keys()
    assert all(part["error"] <= part["certified"] for part in told["parts"])


def test_a_tokenizer_without_tokens_is_refused() -> None:
    model = small("bert")
    empty = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE({"[PAD]": 0}, [])), pad_token="[PAD]")
    with pytest.raises(StrongTicketError, match="the tokenizer knows nothing of 'word1 word2'"):
        compare(model, construct_pretrained(model, items=4), ["word1 word2"], empty)


def test_tokens_that_the_model_does_not_have_are_one_line() -> None:
    model, tokenizer = small("bert"), word_tokenizer()
    tokenizer.add_tokens(["word99"])
    with pytest.raises(StrongTicketError, match=r"cannot read what the tokenizer makes .*out of range") as told:
        compare(model, construct_pretrained(model, items=4), ["word1 word2 word3 word99"], tokenizer)
    assert "\n" not in str(told.value)


def test_compare_refuses_what_does_not_belong_together(bert: Path, gpt2: Path, text: Path, tmp_path: Path) -> None:
    construct_pretrained(small("bert"), items=4).save(tmp_path / "x.ticket")
    done = invoke("compare", "--model", gpt2, "--ticket", tmp_path / "x.ticket", "--text", text)
    assert "the ticket was made for a bert whose weights have SHA-256" in str(done.exception)
    # As models of images come: without a tokenizer, which must not be what is complained of.
    small("vit").save_pretrained(vit := tmp_path / "vit")
    done = invoke("compare", "--model", vit, "--ticket", tmp_path / "x.ticket", "--text", text)
    assert "compare is for models that read one text; this vit reads image" in str(done.exception)


@pytest.mark.parametrize(
    "model",
    [
        make_bert(max_position_embeddings=8),
        make_gpt2(n_positions=8),
        # Its first place is the one behind that of padding.
        make_roberta(max_position_embeddings=10, pad_token_id=1),
    ],
    ids=lambda model: model.config.model_type,
)
def test_texts_are_cut_to_what_the_model_can_take(model: nn.Module, tmp_path: Path) -> None:
    folder, text, ticket = tmp_path / "model", tmp_path / "text.txt", tmp_path / "x.ticket"
    text.write_text("\n".join(" ".join(WORDS[:n]) for n in (4, 8, 9, 40)))
    save(randomize(model), folder)
    construct_pretrained(model, items=4).save(ticket)
    arguments = ("compare", "--model", folder, "--ticket", ticket, "--text", text)
    done = invoke(*arguments)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("4 sentences, 28 tokens;")
    assert "2 of the sentences are longer than 8 tokens and were cut to that" in done.stdout
    short = invoke(*arguments, "--sentences", 2)
    assert short.stdout.startswith("2 sentences, 12 tokens;")
    assert "cut" not in short.stdout


def test_outputs_that_are_not_finite_are_refused(gpt2: Path, text: Path, tmp_path: Path) -> None:
    """A ticket has nothing of the embeddings, so it is one of this model too."""
    broken = copy.deepcopy(small("bert"))
    broken.embeddings.word_embeddings.weight.data[5] = math.nan
    construct_pretrained(small("bert"), items=4).save(tmp_path / "x.ticket")
    arguments = ("--ticket", tmp_path / "x.ticket", "--text", text)
    for options in ((), ("--json",)):
        done = invoke("compare", "--model", save(broken, tmp_path / "broken"), *arguments, *options)
        assert isinstance(done.exception, StrongTicketError)
        assert str(done.exception).startswith("the output of the original model is not finite on these texts")
        assert "\n" not in str(done.exception)
        assert done.stdout == ""
    # A ticket whose products are too large for float32; certified or not, the model's weights are its.
    hostile = construct_pretrained(small("gpt2"), items=4)
    hostile = Ticket(
        seed=hostile.seed,
        tensors=[replace(tensor, scale=1e30) for tensor in hostile.tensors.values()],
        dense=hostile.dense.values(),
        architecture=hostile.architecture,
        certificate=hostile.certificate,
    )
    with pytest.raises(StrongTicketError, match="the output of the ticket is not finite on these texts"):
        compare(small("gpt2"), hostile, read_sentences(text, 2), load_tokenizer(str(gpt2)))


def test_the_same_weights_scaled_otherwise_are_refused_in_one_line(
    run: Run, gpt2: Path, text: Path, tmp_path: Path
) -> None:
    ticket = tmp_path / "x.ticket"
    construct_pretrained(randomize(make_gpt2(scale_attn_weights=False)), items=4).save(ticket)
    said = "the ticket was made for a gpt2 whose weights have SHA-256"
    compared = run("compare", "--model", gpt2, "--ticket", ticket, "--text", text)
    lines = [line for line in compared.stderr.splitlines() if not line.startswith("reading ")]  # after ten seconds
    assert (compared.returncode, compared.stdout, len(lines)) == (1, "", 1)
    assert said in lines[0]
    verified = invoke("verify", ticket, "--target", gpt2)
    assert verified.exit_code == 1
    assert said in verified.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_gpu_that_is_not_there_is_told(bert: Path, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.ticket"
    constructed = invoke("construct", "--model", bert, "--items", 4, "--out", out, "--device", "cuda")
    construct_pretrained(small("bert"), items=4).save(out)
    compared = invoke("compare", "--model", bert, "--ticket", out, "--text", text, "--device", "cuda")
    for done in (constructed, compared):
        assert done.exit_code == 2
        assert "torch finds no CUDA device here. Use --device cpu." in done.output


def test_help_has_examples() -> None:
    for name in ("construct", "compare"):
        done = invoke(name, "-h")
        assert done.exit_code == 0
        assert f"Example: strongticket {name} --model" in done.stdout


def test_vit_from_its_folder(tmp_path: Path) -> None:
    loaded = load_model(str(save(small("vit"), tmp_path / "vit")))
    torch.testing.assert_close(output_of(loaded, inputs("vit")), output_of(small("vit"), inputs("vit")))


@pytest.mark.parametrize("kind", ["phi3", "electra", "gptj", "mixtral", "dinov2"])
def test_a_skeleton_of_a_family_is_one_that_works(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed for a model that no family is known of, from running it without numbers."""
    unknown = {name: family for name, family in families._FAMILIES.items() if name != kind}
    monkeypatch.setattr(families, "_FAMILIES", unknown)
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 2}
    config = {
        "phi3": Phi3Config(**sizes, num_key_value_heads=2, intermediate_size=24, pad_token_id=0),
        "electra": ElectraConfig(**sizes, embedding_size=16, intermediate_size=24),
        "gptj": GPTJConfig(vocab_size=VOCABULARY, n_embd=16, n_head=4, n_layer=2, n_inner=24, rotary_dim=4),
        "dinov2": Dinov2Config(**sizes, image_size=8, patch_size=4),
        # Its experts do not run without numbers, so that only the first layer's attention is seen.
        "mixtral": MixtralConfig(**sizes, num_key_value_heads=2, intermediate_size=24, num_local_experts=2),
    }[kind]
    reads = {"electra": "encoder", "dinov2": "image"}.get(kind, "causal")
    made_of = "linear" if kind in ("phi3", "gptj", "mixtral") else "merged"
    model = randomize((AutoModelForCausalLM if reads == "causal" else AutoModel).from_config(config))
    save(model, tmp_path / "model")
    told = invoke("construct", "--model", tmp_path / "model", "--describe")
    assert told.exit_code == 0, told.output
    assert told.stdout.startswith("# A draft, made from what the model does")
    assert (f"# Note that {kind} has " in told.stdout) == (made_of == "linear")
    (tmp_path / "own.py").write_text(told.stdout)
    assert "what bounds" not in told.stdout
    has_mlp = kind != "mixtral"
    what = ("--families", tmp_path / "own.py", "--what", "attention+mlp" if has_mlp else "attention")
    options = ("--items", 16, "--workers", 1, "--out", tmp_path / "x.ticket")
    done = invoke("construct", "--model", tmp_path / "model", *what, *options)
    assert done.exit_code == 0, (done.output, done.exception)
    again = invoke("construct", "--model", tmp_path / "model", *what, "--describe").stdout
    assert again.startswith(f"family {kind}, parts {made_of}, {reads}\n")
    assert "  attention" in again
    assert ("  mlp.down" in again) == has_mlp


def test_a_model_without_linear_maps_has_no_skeleton(tmp_path: Path) -> None:
    FalconConfig(num_hidden_layers=1).save_pretrained(tmp_path)  # which has linear maps of its own
    told = invoke("construct", "--model", tmp_path, "--describe")
    assert str(told.exception).startswith("no draft can be made for a falcon: it has no list of layers")


def test_a_dry_run_says_what_it_would_take(bert: Path, tmp_path: Path) -> None:
    arguments = ("construct", "--model", bert, "--items", 16, "--workers", 1, "--parts", "linear")
    done = invoke(*arguments, "--dry-run")
    assert done.exit_code == 0, (done.output, done.exception)
    sums, duration, size, memory = done.stdout.splitlines()
    # Two layers of four maps of 16 x 16.
    assert sums.startswith("2,048 subset sums of 16 items, ")
    how_long = r"(less than a second|about [\d.]+ seconds) with 1 worker on cpu, besides start-up"
    assert re.fullmatch(how_long, duration)
    predicted = float(re.fullmatch(r"a ticket of about ([\d.]+) kB", size)[1])
    assert re.match(r"extra memory: [1-9][\d.]* kB for ", memory)
    assert memory.endswith("the largest part, per worker, and the ticket's own size")
    assert not list(tmp_path.iterdir())
    assert invoke(*arguments).exit_code == 2
    assert invoke(*arguments, "--out", tmp_path / "x.ticket").exit_code == 0
    assert 1000 * predicted == pytest.approx((tmp_path / "x.ticket").stat().st_size, rel=0.25)
    # The same command again finds its ticket; with other parts it is another.
    assert invoke(*arguments, "--out", tmp_path / "x.ticket").exit_code == 0
    other = invoke(*arguments[:-1], "merged", "--out", tmp_path / "x.ticket")
    assert "was made with parts linear, not merged" in str(other.exception)


def test_checkpoints_that_cannot_be_started_from_are_one_line(bert: Path, tmp_path: Path) -> None:
    def changed(name: str, **settings: object) -> Path:
        folder = shutil.copytree(bert, tmp_path / name)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | settings))
        return folder

    ran = tmp_path / "ran"
    own = changed("own", model_type="mine", auto_map={"AutoConfig": "mine.Mine", "AutoModel": "mine.Mine"})
    (own / "mine.py").write_text(f"open({str(ran)!r}, 'w')")
    sharded = tmp_path / "sharded"
    small("bert").save_pretrained(sharded, max_shard_size="10KB")
    sorted(sharded.glob("model-*.safetensors"))[1].unlink()
    for folder, said in (
        (
            changed("bits", quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True}),
            "is quantised (bits",
        ),
        (changed("bare", quantization_config={"load_in_8bit": True}), "the checkpoint is quantised; use the model"),
        (own, "comes with its own code, which is never run"),
        (sharded, "cannot be loaded ("),
        (changed("wider", intermediate_size=25), "has shape (24,); according to config.json it must be (25,)."),
        (changed("heads", num_attention_heads=3), "is not a multiple of the number of attention heads (3)"),
    ):
        done = invoke("construct", "--model", folder, "--items", 4, "--out", tmp_path / "x.ticket")
        assert isinstance(done.exception, StrongTicketError)
        assert said in str(done.exception)
        assert "\n" not in str(done.exception)
    assert not ran.exists()


def test_a_part_too_large_for_the_memory_is_one_line(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predict, "_free_memory", lambda: 1 << 20)
    for option in (("--out", tmp_path / "x.ticket"), ("--dry-run",)):
        done = invoke("construct", "--model", bert, "--workers", 2, *option)
        assert re.match(
            r"layer\.0\.attention\.head\.0 needs about .* or 1\.3 GB with 2 at work; 1\.0 MB are free\.",
            str(done.exception),
        )
    assert done.stdout.count("\n") == 4  # what it would take elsewhere
