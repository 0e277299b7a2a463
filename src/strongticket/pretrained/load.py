"""Load models and tokenizers with transformers; a failure is one clear line."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from strongticket.errors import MissingExtraError, StrongTicketError, first_line
from strongticket.pretrained.families import Parts, family_of

# Unused parts of a model; a checkpoint may lack them, and the loader then initialises them at random.
_UNUSED = ("pooler",)
_TOKENIZER_FILES = ("tokenizer*", "vocab*", "*.model")
_MOST_LAYERS = 1000  # several times more than any model has; the loader would make as many as a file asks for


def load_model(name: str, parts: Parts = "merged") -> nn.Module:
    """Load a model of a known family in float32, with its language-modelling head if it predicts the next token.

    Args:
        name: a folder with `config.json` and weights, or a model's name on the Hugging Face hub.
        parts: as in `construct_pretrained`.
    """
    config = load_config(name)
    transformers, maker = _transformers(), _maker(family_of(config, parts).kind == "causal")
    with _one_line(name), _quiet(transformers):
        # Eager attention returns its weights, which `compare` needs.
        model, report = maker.from_pretrained(
            name,
            output_loading_info=True,
            attn_implementation="eager",
            trust_remote_code=False,
            ignore_mismatched_sizes=True,
        )
    for tensor, theirs, ours in sorted(report["mismatched_keys"]):
        raise StrongTicketError(
            f"{name}: {tensor} has shape {tuple(theirs)}; according to config.json it must be {tuple(ours)}."
        )
    missing = sorted(key for key in report["missing_keys"] if not any(part in key for part in _UNUSED))
    if missing:
        raise StrongTicketError(
            f"{name}: the checkpoint lacks {len(missing)} of the model's tensors (the first is {missing[0]}); "
            "they would be random."
        )
    module: nn.Module = model.float().eval()
    return module


def load_config(name: str) -> Any:
    """Load a model's configuration; refuse models with their own code or quantised numbers."""
    if Path(name).is_file():
        raise StrongTicketError(f"{name} is a file; a pretrained model is a folder, such as {Path(name).parent}.")
    transformers = _transformers()
    with _one_line(name), _quiet(transformers):
        try:
            config = transformers.AutoConfig.from_pretrained(name, trust_remote_code=False)
        except ValueError as error:
            if "trust_remote_code" not in str(error):
                raise
            raise StrongTicketError(
                f"{name}: the model comes with its own code, which is never run; only models included in "
                "transformers can be loaded."
            ) from error
    if (quantised := getattr(config, "quantization_config", None)) is not None:
        method = quantised.get("quant_method") if isinstance(quantised, dict) else quantised.quant_method
        how = f" ({getattr(method, 'value', method)})" if method else ""
        raise StrongTicketError(
            f"{name}: the checkpoint is quantised{how}; use the model it was made from, in float32, bfloat16 or "
            "float16."
        )
    if (layers := getattr(config, "num_hidden_layers", 0) or 0) not in range(_MOST_LAYERS + 1):
        raise StrongTicketError(f"{name}: config.json asks for {layers!r:.40} layers; it is damaged, or not a model's.")
    return config


def load_class(name: str) -> Any:
    """Find a model's class by its full name; nothing outside transformers is ever imported."""
    transformers = _transformers()
    kind = getattr(transformers, name.rpartition(".")[2], None)
    known = isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)
    if kind is None or not known or f"{kind.__module__}.{kind.__qualname__}" != name:
        raise StrongTicketError(
            f"the ticket is for a {name:.80}, which transformers does not have; make one as for the search and call "
            "load_ticket(model, ticket)."
        )
    return kind


def load_skeleton(name: str) -> nn.Module:
    """Make a model from its configuration alone, on meta: shapes without numbers."""
    config = load_config(name)
    try:
        causal = family_of(config, "linear").kind == "causal"
    except StrongTicketError:
        causal = any("CausalLM" in each for each in config.architectures or ())
    with _one_line(name), _quiet(_transformers()), torch.device("meta"):
        model: nn.Module = _maker(causal).from_config(config, attn_implementation="eager", trust_remote_code=False)
    return model.eval()


def _maker(causal: bool) -> Any:
    return _transformers().AutoModelForCausalLM if causal else _transformers().AutoModel


def load_tokenizer(name: str) -> Any:
    """Load a model's tokenizer."""
    transformers, folder = _transformers(), Path(name)
    if folder.is_dir() and not any(any(folder.glob(files)) for files in _TOKENIZER_FILES):
        raise StrongTicketError(f"{name} has no tokenizer: no file like {' or '.join(_TOKENIZER_FILES)}.")
    with _one_line(name, "its tokenizer "), _quiet(transformers):
        return transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=False)


def _transformers() -> Any:
    try:
        import transformers
    except ModuleNotFoundError:
        raise MissingExtraError("pretrained models need transformers: pip install 'strongticket[hf]'") from None
    return transformers


@contextmanager
def _one_line(name: str, which: str = "") -> Iterator[None]:
    """Reduce the loader's errors, which take many lines, to one line."""
    try:
        yield
    except StrongTicketError:
        raise
    except Exception as error:
        # The loader raises errors of json, safetensors, torch, the hub and its own, which share no other base class.
        reason = first_line(error).rstrip(".:")
        where = (
            ""
            if Path(name).is_dir()
            else " There is no such folder, and it could not be loaded from the hub or its cache."
        )
        raise StrongTicketError(f"{name}: {which}cannot be loaded ({reason}).{where}") from error


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Silence the loader's progress bars and reports; everything important is checked here."""
    from huggingface_hub.utils import logging as hub

    own = transformers.utils.logging
    levels, bar = (own.get_verbosity(), hub.get_verbosity()), own.is_progress_bar_enabled()
    own.set_verbosity_error()
    hub.set_verbosity_error()  # type: ignore[no-untyped-call]
    own.disable_progress_bar()
    try:
        yield
    finally:
        own.set_verbosity(levels[0])
        hub.set_verbosity(levels[1])
        if bar:
            own.enable_progress_bar()
