"""Models and tokenizers through their own loader, with one clear line when that fails."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from strongticket.errors import MissingExtraError, StrongTicketError, first_line
from strongticket.pretrained.families import family_of

# The parts of a model that nothing here uses; a checkpoint may lack them, and the loader then draws them at random.
_UNUSED = ("pooler",)
_MOST_LAYERS = 1000  # several times what any model has; the loader would make as many as a file asks for


def load_model(name: str) -> nn.Module:
    """Load a model of a known family in float32, with its language-modelling head if it predicts the next token.

    Args:
        name: a folder with `config.json` and weights, or a model's name on the Hugging Face hub.
    """
    transformers = _transformers()
    with _one_line(name), _quiet(transformers):
        config = transformers.AutoConfig.from_pretrained(name)
    if (layers := getattr(config, "num_hidden_layers", None)) not in range(_MOST_LAYERS + 1):
        raise StrongTicketError(f"{name}: config.json asks for {layers!r:.40} layers; it is damaged, or no model's.")
    kind = family_of(config).kind
    maker = transformers.AutoModelForCausalLM if kind == "causal" else transformers.AutoModel
    with _one_line(name), _quiet(transformers):
        # Eager attention gives its weights away, which `compare` looks at.
        model, report = maker.from_pretrained(name, output_loading_info=True, attn_implementation="eager")
    missing = sorted(key for key in report["missing_keys"] if not any(part in key for part in _UNUSED))
    if missing:
        raise StrongTicketError(
            f"{name}: the checkpoint lacks {len(missing)} tensors of the model, the first is {missing[0]}; "
            "they would be random."
        )
    module: nn.Module = model.float().eval()
    return module


def load_tokenizer(name: str) -> Any:
    """Load a model's tokenizer."""
    transformers = _transformers()
    with _one_line(name), _quiet(transformers):
        return transformers.AutoTokenizer.from_pretrained(name)


def _transformers() -> Any:
    try:
        import transformers
    except ModuleNotFoundError:
        raise MissingExtraError("pretrained models need transformers: pip install 'strongticket[hf]'") from None
    return transformers


@contextmanager
def _one_line(name: str) -> Iterator[None]:
    """Turn whatever the loader raises, over many lines, into one."""
    try:
        yield
    except StrongTicketError:
        raise
    except Exception as error:
        # The loader passes on errors of json, safetensors, torch, the hub and its own, which share no other base.
        reason = first_line(error).rstrip(".")
        where = "" if Path(name).is_dir() else " There is no such folder, and the hub or its cache has not given it."
        raise StrongTicketError(f"{name}: cannot be loaded ({reason}).{where}") from error


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Keep the loader's bars and reports off the terminal: what matters is checked here."""
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
