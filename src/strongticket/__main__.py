"""The installed command, and `python -m strongticket`, which is how torchrun starts it."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it with 130 and no traceback, even while it is still being imported."""
    try:
        from strongticket.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        # An interrupt that met code run from a string, as imports have it, is remembered, and `python -m` would end by
        # that signal, whatever the exit code. It is forgotten as soon as other such code is run.
        exec("")


if __name__ == "__main__":
    main()
