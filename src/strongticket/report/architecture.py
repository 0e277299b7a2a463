"""A ticket's settings in plain words."""

from collections.abc import Iterator, Mapping

_FAMILIES = {"gpt2": "GPT-2"}
# How settings are written; {} is the value. Others keep their names, with spaces for underscores.
_WORDS = {
    "model_type": "{}",
    "what": "of its {}",
    "n_layers": "{} layers",
    "d_model": "width {}",
    "n_heads": "{} heads",
    "d_in": "{} inputs",
    "d_out": "{} outputs",
    "context": "context of {} tokens",
    "vocabulary": "vocabulary of {}",
    "items": "{} items per entry",
    "activation": "{}",
    "init": "init {}",
}
_ORDER = {name: place for place, name in enumerate(_WORDS)}
_FLAGS = {
    "bias": ("with biases", "no biases"),
    "tied": ("head tied to the embeddings", "separate head"),
}
_NEUTRAL = {"dropout": 0, "output_gain": 1, "norm_epsilon": 1e-5}  # not mentioned


def architecture_words(architecture: Mapping[str, object]) -> str:
    """Write settings in one line.

    Example:
        >>> architecture_words({"config": {"bias": False, "n_layers": 4, "context": 1024}, "family": "gpt2"})
        'GPT-2: 4 layers, context of 1,024 tokens, no biases'
    """
    family = architecture.get("family")
    settings = ", ".join(_settings({name: value for name, value in architecture.items() if name != "family"}))
    name = _FAMILIES.get(str(family), str(family)) if family is not None else ""
    return f"{name}: {settings}" if name and settings else name or settings


def _settings(settings: Mapping[str, object]) -> Iterator[str]:
    for name, value in sorted(settings.items(), key=lambda setting: _ORDER.get(setting[0], len(_ORDER))):
        if isinstance(value, Mapping):
            yield from _settings(value)
        elif name in _FLAGS and isinstance(value, bool):
            yield _FLAGS[name][not value]
        elif name not in _NEUTRAL or value != _NEUTRAL[name]:
            yield _WORDS.get(name, name.replace("_", " ") + " {}").replace("{}", _value(value))


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        if value and all(isinstance(part, Mapping) for part in value):
            return f"({'; '.join(', '.join(_settings(part)) for part in value)})"
        return " ".join(map(_value, value))
    return str(value)
