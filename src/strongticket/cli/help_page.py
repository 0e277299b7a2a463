"""Help pages with plain words: FILE and N, not the names of Python's types."""

import re
from typing import Any

from typer.core import TyperCommand, TyperGroup

from strongticket.cli.terminal import one_line

_WORDS = {"int": "N", "float": "X", "str": "TEXT", "file": "FILE", "dir": "DIR", "path": "PATH"}
# pydantic's words, which newer releases of typer show, and click's.
_COMPLAINTS = {
    "^Value error, ": "",
    "^Input should be a valid integer.*|.* is not a valid int(eger)?( range)?.$": "It must be a whole number.",
    "^Input should be a valid number.*|.* is not a valid float( range)?.$": "It must be a number.",
    r"^Input should be greater than or equal to (\S+)|.* is not in the range x>=(\S+)\.$": r"It must be at least \1\2.",
    r"^Input should be less than or equal to (\S+)|.* is not in the range x<=(\S+)\.$": r"It must be at most \1\2.",
    r".* is not in the range (\S+)<=x<=(\S+)\.$": r"It must be at least \1 and at most \2.",
}
_TYPE = re.compile(r" <([^>]+)>")


class Command(TyperCommand):
    """A command whose help groups options under headings (their `rich_help_panel`) and plainly names their values."""

    # Some releases of typer rename click's classes, so they are not named here.
    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return what follows the command's name, with arguments without braces."""
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options, heading by heading."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            if (record := param.get_help_record(ctx)) is not None:
                kind = param.param_type_name
                heading = getattr(param, "rich_help_panel", None) or f"{kind.capitalize()}s"
                name, text = record
                name = _TYPE.sub("", name) if kind == "argument" else _TYPE.sub(_taken, name)
                sections.setdefault(heading, []).append((name, plain_range(text)))
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the example so that it can be copied at any width."""
        formatter.write_paragraph()
        with formatter.indentation():
            # \b preserves line breaks.
            formatter.write_text("\b\n" + folded(self.epilog or "", formatter.width - formatter.current_indent))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; errors are reworded in plain English, without control characters of file names."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if isinstance(message := getattr(error, "message", None), str):
                error.message = one_line(plain_complaint(message))  # type: ignore[attr-defined]
            raise

    def invoke(self, ctx: Any) -> Any:
        """Import NumPy and run the command; Ctrl-C while torch imports NumPy would look like a missing NumPy."""
        import numpy as np  # noqa: F401

        return super().invoke(ctx)


class Group(TyperGroup):
    """A group of commands whose help has the whole first sentence of each."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a line per command, or more where the terminal is narrow; click would cut it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.commands[name].get_short_help_str(1000)) for name in self.commands])


def _taken(found: re.Match[str]) -> str:
    """Name an option's value; a list of choices stays as it is."""
    return " " + _WORDS.get(found[1].removesuffix(" range"), found[1])


def folded(command: str, width: int) -> str:
    """Break a command before its options, as a shell allows, where a line would be too long.

    Example:
        >>> print(folded("strongticket search --size nano --steps 200", 32))
        strongticket search \\
          --size nano --steps 200
    """
    first, *more = command.split(" --")
    lines = [first]
    for part in more:
        longer = f"{lines[-1]} --{part}"
        if len(longer) + len(" \\") <= width:
            lines[-1] = longer
        else:
            lines.append(f"  --{part}")
    return " \\\n".join(lines)


def plain_complaint(text: str) -> str:
    """Reword a parser's error message in plain English.

    Example:
        >>> plain_complaint("Value error, 'x' is not one of 'search', 'dense'.")
        "'x' is not one of 'search', 'dense'."
        >>> plain_complaint("Input should be a valid integer, unable to parse string as an integer")
        'It must be a whole number.'
        >>> plain_complaint("0 is not in the range x>=1.")
        'It must be at least 1.'
    """
    for pattern, words in _COMPLAINTS.items():
        text = re.sub(pattern, words, text)
    return text


def plain_range(text: str) -> str:
    """Write a range in words; leave out one that only keeps a seed within machine integers.

    Example:
        >>> plain_range("Timed runs.  [default: 7; x>=1]")
        'Timed runs.  [default: 7; at least 1]'
        >>> plain_range("Seed.  [default: 0; 0<=x<=9223372036854775807]")
        'Seed.  [default: 0]'
    """
    text = re.sub(r"; \d+<=x<=\d{10,}", "", text)
    text = re.sub(r"\[default: \((.*)\)(; x>=[\d.]+)?\]", r"[default: \1\2]", text)
    return re.sub(r"\bx>=([\d.]+)", r"at least \1", text)
