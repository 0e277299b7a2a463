"""The installed command, and `python -m strongticket`, which is how torchrun starts it."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it with 130 and no traceback, even while it is still being imported."""
    try:
        from strongticket import cli

        cli.main()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
