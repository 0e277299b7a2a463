"""Options and arguments shared by several commands."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

from strongticket.cli.terminal import bad_usage, tell

if TYPE_CHECKING:
    from strongticket.cluster import Cluster


NEEDED = inspect.Parameter.empty  # the default of an option that must be given


def _ticket_file(path: Path) -> Path:
    """Refuse a folder; if it has a search's ticket, name it."""
    if not path.is_dir():
        return path
    found = sorted(path.glob("**/best.ticket"))
    raise typer.BadParameter(f"{path} is a folder; give a ticket file{f', such as {found[0]}' if found else ''}.")


def option(about: str, *names: str, panel: str | None = None, shown: bool | str = True, **more: Any) -> Any:
    """Declare an option by its help; without `names`, its parameter names it. `shown` is its default in words."""
    return typer.Option(*names, help=about, rich_help_panel=panel, show_default=shown, **more)


TicketFile = Annotated[
    Path,
    typer.Argument(metavar="FILE", exists=True, show_default=False, help="Ticket file.", callback=_ticket_file),
]
Families = Annotated[
    Path | None,
    option("Python file that registers your own model families.", exists=True, dir_okay=False, shown=False),
]
Dask = Annotated[str | None, option("A Dask scheduler to run on, such as tcp://host:8786.", metavar="ADDRESS")]
_TIMEOUT = "Give up after this long without a finished task or an answer from a worker."
DaskTimeout = Annotated[float | None, option(_TIMEOUT, min=1, metavar="SECONDS", shown="120")]
AsJson = Annotated[bool, option("Print one JSON object instead of text.", "--json")]


def device_option(panel: str | None = None) -> Any:
    """Make the device option of a command that uses a GPU if there is one."""
    return option("cpu or cuda.", "--device", metavar="DEVICE", panel=panel, shown="cuda if there is one")


def set_signature(command: Callable[..., None], options: Mapping[str, tuple[Any, Any, Any]]) -> None:
    """Give a command options from data, for typer: type, default (`NEEDED` for none) and `option` of each name."""
    parameters = [_parameter(name, *described) for name, described in options.items()]
    # Typer reads this attribute, which functions do not declare.
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]


def _parameter(name: str, kind: Any, default: Any, option: Any) -> inspect.Parameter:
    place = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name, place, default=default, annotation=Annotated[kind, option])


def with_settings(kind: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for every field that `setting` declares; their values reach it as `**settings`.

    They come after the command's context and arguments, before its own options.

    Args:
        kind: a dataclass; fields of a nested dataclass are options as well, under its heading.
    """

    def command_with(command: Callable[..., None]) -> Callable[..., None]:
        *own, last = inspect.signature(command).parameters.values()
        assert last.kind is inspect.Parameter.VAR_KEYWORD
        first = [parameter for parameter in own if parameter.default is parameter.empty]
        signature = inspect.Signature([*first, *_options(kind), *own[len(first) :]])
        command.__signature__ = signature  # type: ignore[attr-defined]
        return command

    return command_with


_WIDEST_CHOICES = 64  # in columns; with the flag's name they fill a line of 80


def _options(kind: type[Any], **heading: str) -> Iterator[inspect.Parameter]:
    for own in fields(kind):
        if is_dataclass(own.default_factory):
            yield from _options(own.default_factory, rich_help_panel=own.metadata["panel"])
        elif "option" in own.metadata:
            yield _option(own, {**heading, **own.metadata["option"]})


def _option(own: "Field[Any]", more: dict[str, Any]) -> inspect.Parameter:
    """Make an option as typer reads it from a function's signature."""
    flag, kind, shown = flag_of(own.name), own.type, own.metadata["shown"]
    default: Any = own.default
    if get_origin(kind) is tuple:
        item, wanted = get_args(kind)[0], "whole numbers separated by commas, such as 8,16"
        read = _reader(flag, wanted, lambda text: tuple(item(part.strip()) for part in text.split(",")))
        more |= {"metavar": "LIST", "callback": read}
        kind, default = str, ",".join(map(str, default))
    if shown is not None:
        kind, default, more["show_default"] = kind | None, None, shown or False  # type: ignore[operator]
    words = [get_args(part) for part in get_args(kind) if get_origin(part) is Literal]
    if float in get_args(kind) and words:  # typer does not support this union
        kind = str
        more |= {"metavar": "|".join(("X", *words[0])), "callback": _reader(flag, " or a number", float, words[0])}
    if words and any(get_origin(part) is Mapping for part in get_args(kind)):
        kind = str
        read = _reader(flag, ", or NAME=X,... with a number for each", _numbers, words[0])
        more |= {"metavar": "|".join((*words[0], "NAME=X,...")), "callback": read}
    if get_origin(kind) is Literal and len("|".join(get_args(kind))) > _WIDEST_CHOICES:
        more |= {"metavar": "NAME", "help": f"{more['help']} One of {', '.join(get_args(kind))}."}
    # Typer adds --no-NAME to flags it names itself, which is useless for a flag that is off by default.
    names = [] if bool in (kind, *get_args(kind)) and default is not False else [flag]
    return _parameter(own.name, kind, default, typer.Option(*names, **more))


def _reader(
    flag: str, wanted: str, read: Callable[[str], object], words: Sequence[str] = ()
) -> Callable[[str | None], object]:
    """Make a callback that reads what typer cannot; the option may also be left out or be one of some words."""

    def value(text: str | None) -> object:
        try:
            return text if text is None or text in words else read(text)
        except ValueError:
            bad_usage(f"{flag} must be {' or '.join(words)}{wanted}; got {text!r}.")

    return value


def _numbers(text: str) -> dict[str, float]:
    return {name: float(number) for name, number in (part.rsplit("=", 1) for part in text.split(","))}


def flag_of(name: str) -> str:
    """Return a parameter's name on the command line."""
    return f"--{name.replace('_', '-')}"


def given_options(context: typer.Context) -> set[str]:
    """Return the parameters that the user set, on the command line or in the environment."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source and source.name != "DEFAULT"}


def refuse_unused(unused: Sequence[str], about: str) -> None:
    """Refuse options that would have no effect, since the user expects one."""
    if unused:
        bad_usage(f"{' and '.join(unused)} {'is' if len(unused) == 1 else 'are'} for {about}.")


def chosen_cluster(workers: int | None, dask: str | None, timeout: float | None) -> "Cluster | None":
    """Return the requested cluster; refuse it together with local workers."""
    from strongticket.cluster import TIMEOUT_SECONDS, Cluster

    if dask is None:
        refuse_unused(["--dask-timeout"] if timeout is not None else [], "--dask, which is not given")
        return None
    if workers is not None:
        bad_usage("--workers and --dask exclude each other: a cluster has its own number of workers.")
    return Cluster(dask, timeout or TIMEOUT_SECONDS, tell)


def load_families(file: Path | None) -> None:
    """Run the file given with `--families`, if any."""
    if file is not None:
        from strongticket.pretrained.families import run_families

        run_families(file)


def chosen_device(asked: str | None) -> str:
    """Return the device to use; a missing one is bad usage."""
    if asked not in (None, "cpu", "cuda"):
        bad_usage(f"--device must be cpu or cuda; got {asked!r}. CUDA_VISIBLE_DEVICES chooses among several GPUs.")
    if asked == "cpu":
        return asked
    import torch

    there = torch.cuda.is_available()
    if asked == "cuda" and not there:
        bad_usage("--device cuda was given, but torch finds no CUDA device here. Use --device cpu.")
    return "cuda" if there else "cpu"
