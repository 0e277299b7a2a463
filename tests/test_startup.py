"""What has to be quick, or quiet, before any work begins: imports, help pages, and Ctrl-C in the first seconds."""

import ast
import pkgutil
import pydoc
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

import strongticket
from strongticket.cli.main import app

GOLDEN = Path(__file__).parent / "golden" / "attention.ticket"


def python(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True)


def words_of_commands(command: Any, *path: str) -> list[tuple[str, ...]]:
    inner = getattr(command, "commands", {})
    return [path, *(words for name in inner for words in words_of_commands(inner[name], *path, name))]


COMMANDS = words_of_commands(typer.main.get_command(app))
WITHOUT_WORK = [
    *((*words, "-h") for words in COMMANDS),
    ("-V",),
    (),
    ("juggle",),
    ("show", "no-such-file"),
    ("search", "--steps", "many"),
    ("search", "--device", "tpu"),
    ("evaluate", str(GOLDEN), "--data", "sample", "--device", "mps"),
    ("generate", str(GOLDEN), "--device", "cuda:1"),
    ("construct", "--model", "m", "--out", "o", "--workers", "2", "--dask", "tcp://a:1"),
    ("bench", "pensia", "--repeats", "0"),
]


def test_help_version_and_bad_usage_do_not_load_torch() -> None:
    """All in one process: nothing that any of them imports is torch, Numba or an extra."""
    script = """
import sys
from strongticket.__main__ import main
for line in sys.argv[1:]:
    sys.argv = ["strongticket", *line.split()]
    try:
        main()
    except SystemExit as stopped:
        code = stopped.code
    heavy = {"torch", "numba", "scipy", "matplotlib", "transformers"} & set(sys.modules)
    print("after", *sys.argv, ":", code, *heavy, file=sys.stderr)
"""
    done = python(script, *map(" ".join, WITHOUT_WORK))
    told = [line for line in done.stderr.splitlines() if line.startswith("after ")]
    codes = ["0" if {"-h", "-V"} & set(words) or not words else "2" for words in WITHOUT_WORK]
    assert len(COMMANDS) > 15
    assert told == [
        " ".join(["after strongticket", *words, ":", code]) for words, code in zip(WITHOUT_WORK, codes, strict=True)
    ]


def test_a_use_of_a_name_imports_what_it_needs_and_no_more() -> None:
    done = python("import strongticket as st, sys; print('torch' in sys.modules, st.Ticket, 'numba' in sys.modules)")
    assert done.stdout == "False <class 'strongticket.tickets.ticket.Ticket'> False\n"


def test_settings_need_no_torch() -> None:
    script = """
import sys
import strongticket as st
from strongticket.learn.config import RunConfig
print(RunConfig(policy=st.Policy(density=0.5)).schedule.at(0) > 0, *{"torch", "numpy"} & set(sys.modules))
"""
    assert python(script).stdout == "True\n"


def test_type_checkers_read_what_python_imports() -> None:
    """Both halves of the file name the same things, and no submodule takes the place of one of them."""
    (block,) = [
        node for node in ast.parse(Path(str(strongticket.__file__)).read_text("utf-8")).body if type(node) is ast.If
    ]
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    checked = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            assert alias.asname == alias.name
            checked[alias.name] = str(node.module)
    fresh = python("import strongticket as st; print(*{*st.__all__} - {*vars(st)})")
    assert set(fresh.stdout.split()) == set(checked)
    for name, home in checked.items():
        assert getattr(strongticket, name) is getattr(sys.modules[home], name)
    assert not {found.name for found in pkgutil.iter_modules(strongticket.__path__)} & set(checked)


def test_all_names_are_listed_documented_and_exported() -> None:
    exported: dict[str, Any] = {}
    exec("from strongticket import *", exported)
    assert set(exported) - {"__builtins__"} == set(strongticket.__all__)
    page = pydoc.plain(pydoc.render_doc(strongticket))
    for name in strongticket.__all__:
        assert name in page


def test_dir_has_what_is_public_and_nothing_else_whatever_was_imported() -> None:
    script = "import strongticket as st; st.Ticket, st.search; import strongticket.bounds; print(*dir(st))"
    assert python(script).stdout.split() == sorted([*strongticket.__all__, "__version__"])
    for name in strongticket.__all__:
        assert getattr(strongticket, name).__module__.startswith("strongticket."), name


def test_a_misspelled_name_is_refused_in_pythons_words() -> None:
    with pytest.raises(AttributeError, match=r"^module 'strongticket' has no attribute 'Tiket'$"):
        strongticket.Tiket  # noqa: B018
    done = python("from strongticket import Tiket")
    assert done.stderr.splitlines()[-1].startswith("ImportError: cannot import name 'Tiket' from 'strongticket' (")


# Where Ctrl-C comes: among the command line's own imports, in NumPy's and in torch's.
@pytest.mark.parametrize(
    "where", ["strongticket.cli.main", "typer", "rich.progress", "numpy.lib", "torch._C", "torch.nn"]
)
def test_ctrl_c_during_imports_is_quiet(where: str) -> None:
    script = """
import signal, sys
from strongticket.__main__ import main

class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == where:
            sys.meta_path.remove(self)  # once: what was swallowed must not be noticed by a second one
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
where = sys.argv.pop(1)
sys.meta_path.insert(0, CtrlC())
main()
"""
    done = python(script, where, "verify", str(GOLDEN))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_while_an_object_is_deleted_is_not_lost() -> None:
    """Python prints and forgets it: a search that was compiling a kernel ran on to its end."""
    script = """
import signal, time
from strongticket.cli import main as cli
from strongticket.__main__ import main

class Deleted:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def run():
    Deleted()
    time.sleep(60)

signal.signal(signal.SIGINT, signal.default_int_handler)
cli.main = run
main()
"""
    done = python(script)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


INTERRUPTED_IN_A_STRING = """
from strongticket.cli import main as cli
from strongticket.__main__ import main

def stopped():
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        raise SystemExit(130) from None

cli.main = stopped
main()
"""


def test_an_interrupt_in_code_run_from_a_string_leaves_the_exit_code_alone(tmp_path: Path) -> None:
    """Python ends `python -m` by the signal then; a caller that is no shell would not see 130."""
    (tmp_path / "interrupted.py").write_text(INTERRUPTED_IN_A_STRING)
    assert subprocess.run([sys.executable, "-m", "interrupted"], cwd=tmp_path, check=False).returncode == 130
