"""Target models and samples on disk."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from strongticket.errors import MissingExtraError, StrongTicketError
from strongticket.ops.arrays import load_npy

_WEIGHTS = "model.safetensors"
_SAVE = "safetensors.torch.save_file(model.state_dict(), 'target.safetensors')"
_SAVE_SAMPLES = "safetensors.torch.save_file({'samples': samples}, 'samples.safetensors')"
_SAMPLES = "samples must be a .npy file of numbers, or a .safetensors file"


def load_target(path: Path, save: str = _SAVE) -> dict[str, Tensor]:
    """Read a safetensors file, or the `model.safetensors` of a Hugging Face model folder; `save` is advice."""
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
        raise StrongTicketError(f"{file}: not a safetensors file ({error}). Save one with {save}.") from error


def load_samples(path: Path) -> Tensor | dict[str, Tensor]:
    """Read inputs from a `.npy` file, or inputs by name from a safetensors file."""
    if path.suffix == ".safetensors":
        return load_target(path, _SAVE_SAMPLES)
    try:
        array = load_npy(path)
    except ValueError as error:
        raise StrongTicketError(f"{path}: {_SAMPLES}.") from error
    if array.dtype.kind not in "iuf":
        raise StrongTicketError(f"{path}: {_SAMPLES}; tokens must be integers; these are {array.dtype.name}.")
    # Integers stay integers: they may be tokens. Of floats torch has none longer than float64.
    return torch.from_numpy(array.astype(np.float64 if array.itemsize > 8 else array.dtype.newbyteorder("=")))
