"""Folders in, folders out: tickets of pretrained models as transformers reads and writes them."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor, nn

import strongticket as st
from strongticket.pretrained.load import load_model
from tests.pretrained.small_models import from_zoo, make_bert, make_gpt2, randomize

TOKENS = torch.randint(60, (2, 7), generator=torch.Generator().manual_seed(0))


def output(model: nn.Module) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(TOKENS)[0]
    return found


def searched(model: nn.Module) -> st.Ticket:
    batches = [{"input_ids": TOKENS}] * 2
    return st.search(model, batches, loss=lambda run, batch: run(**batch)[0].square().mean()).to_ticket()


@pytest.fixture
def gpt2(tmp_path: Path) -> Path:
    make_gpt2().save_pretrained(tmp_path / "gpt2")
    return tmp_path / "gpt2"


def test_a_searched_ticket_and_its_folder_are_the_model_and_can_be_saved(gpt2: Path, tmp_path: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(gpt2)
    ticket = searched(model)
    ticket.save(tmp_path / "gpt2.ticket")
    # All numbers are the ticket's.
    (gpt2 / "model.safetensors").unlink()
    loaded = st.load_pretrained(tmp_path / "gpt2.ticket", gpt2)
    assert type(loaded) is type(make_gpt2())
    assert not loaded.training
    torch.testing.assert_close(output(loaded), output(model.eval()), rtol=0, atol=1e-6)
    loaded.save_pretrained(tmp_path / "saved", max_shard_size="10KB")
    assert len([*(tmp_path / "saved").glob("*.safetensors")]) > 1
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "saved").eval()
    assert torch.equal(output(again), output(loaded))


def test_another_folder_is_refused_by_what_differs(gpt2: Path, tmp_path: Path) -> None:
    ticket = searched(make_gpt2())
    make_gpt2(n_head=2).save_pretrained(tmp_path / "heads")  # of the same shapes
    with pytest.raises(st.StrongTicketError, match=r"heads has other settings .*\(n_head: 4 there, 2 here"):
        st.load_pretrained(ticket, tmp_path / "heads")
    make_bert().save_pretrained(tmp_path / "bert")
    with pytest.raises(st.StrongTicketError, match=r"needs a GPT2Config; .*bert has a BertConfig"):
        st.load_pretrained(ticket, tmp_path / "bert")
    with pytest.raises(st.StrongTicketError, match=r"is for a torch\.nn.*Linear, which transformers does not have"):
        st.load_pretrained(st.hide(nn.Linear(2, 2), seed=0).to_ticket(), gpt2)
    ours = st.Ticket(seed=0, tensors=[], architecture={"family": "linear"})
    with pytest.raises(st.StrongTicketError, match=r"for one of family linear, use build\(\)"):
        st.load_pretrained(ours, gpt2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_constructed_ticket_needs_the_numbers_it_was_made_from(dtype: torch.dtype, tmp_path: Path) -> None:
    model = randomize(make_bert(num_hidden_layers=1)).to(dtype)
    model.save_pretrained(tmp_path / "bert", max_shard_size="10KB")  # in several files
    ticket = st.construct_pretrained(load_model(str(tmp_path / "bert")), items=8)
    loaded = st.load_pretrained(ticket, tmp_path / "bert")
    attached = st.attach(load_model(str(tmp_path / "bert")), ticket)
    assert torch.equal(output(loaded), output(attached))
    with pytest.raises(st.StrongTicketError, match="BertModel has no place for merged or random matrices"):
        loaded.save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
    randomize(model.float(), seed=1).save_pretrained(tmp_path / "other")
    with pytest.raises(st.StrongTicketError, match="Use the model it was made from"):
        st.load_pretrained(ticket, tmp_path / "other")


@pytest.mark.parametrize("name", ["Llama", "GPT-2"])
def test_a_constructed_ticket_of_linear_maps_can_be_saved(name: str, tmp_path: Path) -> None:
    """GPT-2 has another kind of linear maps, which it must keep."""
    from_zoo(name).save_pretrained(tmp_path / "model")
    model = load_model(str(tmp_path / "model"))
    ticket = st.construct_pretrained(model, items=8, parts="linear", what="attention+mlp")
    loaded = st.load_pretrained(ticket, tmp_path / "model")
    loaded.save_pretrained(tmp_path / "saved")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "saved").eval()
    torch.testing.assert_close(output(again), output(loaded), rtol=0, atol=1e-6)
    assert not torch.allclose(output(again), output(model), rtol=0, atol=1e-6)


def test_a_model_that_could_not_be_loaded_again_is_not_saved(tmp_path: Path) -> None:
    model = randomize(make_gpt2())
    for parts, mode in (("merged", "merged"), ("linear", "literal")):
        attached = st.attach(model, st.construct_pretrained(model, items=8, parts=parts), mode)
        again = pickle.loads(pickle.dumps(attached))
        for each in (attached, again):
            with pytest.raises(st.StrongTicketError, match="a GPT2LMHeadModel has no place for merged or random"):
                each.save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


# --- Bad input -------------------------------------------------------------------------------------------------------


def rewrite_config(folder: Path, **settings: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def lose_a_shard(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    make_gpt2().save_pretrained(folder, max_shard_size="10KB")
    next(folder.glob("model-*.safetensors")).unlink()


def quantise(folder: Path) -> None:
    rewrite_config(folder, quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True})


def bring_code(folder: Path) -> None:
    (folder / "own.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\nclass C: ...\n")
    rewrite_config(folder, model_type="own", auto_map={"AutoConfig": "own.C", "AutoModel": "own.C"})


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lose_a_shard, r"cannot be loaded \(.*model-0000"),
        (quantise, r"the checkpoint is quantised \(bitsandbytes\); use the model it was made from"),
        (bring_code, "comes with its own code, which is never run"),
    ],
)
def test_bad_folders_are_refused_in_a_line_and_no_code_is_run(
    gpt2: Path, spoil: Callable[[Path], None], told: str
) -> None:
    spoil(gpt2)
    with pytest.raises(st.StrongTicketError, match=told) as caught:
        load_model(str(gpt2))
    assert "\n" not in str(caught.value)
    assert not (gpt2 / "ran").exists()
