"""The installed command, and `python -m strongticket`, which is how torchrun starts it."""

import os
import signal
import sys
import threading


def main() -> None:
    """Run the command line; Ctrl-C exits with code 130 and no traceback, even during imports."""
    sys.unraisablehook = _interrupt_again
    try:
        from strongticket.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        # Python remembers an interrupt during code run from a string, as in imports, and `python -m` would then end
        # by that signal, whatever the exit code. Running other such code clears it.
        exec("")


def _interrupt_again(ignored: "sys.UnraisableHookArgs") -> None:
    """Repeat a Ctrl-C that Python ignored because it came while an object was deleted, as when kernels are compiled."""
    if not issubclass(ignored.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(ignored)
        return
    # A little later, or it would be raised in here and ignored again.
    again = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    again.daemon = True
    again.start()


if __name__ == "__main__":
    main()
