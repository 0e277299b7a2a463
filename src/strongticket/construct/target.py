"""Target models on disk, as named tensors."""

from pathlib import Path

from torch import Tensor

from strongticket.errors import MissingExtraError, StrongTicketError

_WEIGHTS = "model.safetensors"


def load_target(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file, or the `model.safetensors` of a folder as Hugging Face lays models out."""
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ModuleNotFoundError:
        raise MissingExtraError("reading a target needs safetensors: pip install 'strongticket[hf]'") from None
    file = path / _WEIGHTS if path.is_dir() else path
    if not file.is_file():
        raise StrongTicketError(f"{path}: no such file, or a folder without {_WEIGHTS}.")
    try:
        return load_file(file)
    except SafetensorError as error:
        raise StrongTicketError(f"{file}: not a safetensors file ({error}).") from error
