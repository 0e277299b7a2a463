"""The installed command, and `python -m strongticket`, which is how torchrun starts it."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C exits with code 130 and no traceback, even during imports."""
    try:
        from strongticket.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        # Python remembers an interrupt during code run from a string, as in imports, and `python -m` would then end
        # by that signal, whatever the exit code. Running other such code clears it.
        exec("")


if __name__ == "__main__":
    main()
