import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from strongticket import __version__

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build from a copy without isolation, so that no build tool is fetched and no build folder is left here."""
    folder = tmp_path_factory.mktemp("wheel")
    tracked = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    assert tracked.returncode == 0, tracked.stderr
    for name in tracked.stdout.splitlines():
        if name.startswith("src/") or "/" not in name:
            (folder / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "tree" / name).write_bytes((ROOT / name).read_bytes())
    # Without a word of what to build it makes an sdist, and the wheel from that: so the sdist has all it takes.
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, folder / "tree"]
    subprocess.run(build, check=True, capture_output=True)
    assert (folder / f"strongticket-{__version__}.tar.gz").is_file()
    (made,) = folder.glob("*.whl")
    return made


def test_wheel_holds_code_tables_kernels_and_the_type_marker(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for file in (
        "py.typed",
        "cli/main.py",
        "ops/philox/philox.cu",
        "ops/philox/normal_table.npy",
        "data/sample/train.txt.xz",
        "data/sample/LICENCE.md",
        "report/assets/page.js",
        "report/templates/page.html",
    ):
        assert f"strongticket/{file}" in names
    assert not any(name.startswith("tests") for name in names)


@pytest.mark.slow  # a minute; `.ci/run` does it
def test_wheel_works_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    """Install it as a user would, with nothing but what it declares."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt"]
    # torch first and pinned, as in the Makefile.
    subprocess.run([*install, "torch"], check=True)
    subprocess.run([*install, wheel], check=True)
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # which may lead to this tree
    command = [tmp_path / "venv" / "bin" / "strongticket", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=alone)
    assert done.stdout == f"strongticket {__version__}\n"
    draw = "import strongticket as st; print(st.__file__, st.random_weights(0, 'w', (3,), 'normal'))"
    done = subprocess.run([python, "-c", draw], capture_output=True, text=True, check=True, cwd=tmp_path, env=alone)
    assert done.stdout.startswith(str(tmp_path))
