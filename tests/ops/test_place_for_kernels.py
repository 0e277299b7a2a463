import os
import subprocess
import sys
from pathlib import Path

import pytest

from strongticket.ops import find_place_for_kernels


@pytest.mark.parametrize("writable", [True, False])
def test_kernels_have_a_place_where_nothing_can_be_written(
    writable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """numba refuses to compile what it cannot keep."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "not there" / "yet"))
    monkeypatch.setattr(os, "access", lambda *_, **__: writable)
    find_place_for_kernels()
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    assert (chosen is None) == writable
    if chosen is not None:
        assert Path(chosen).is_dir()


def test_the_place_goes_with_the_process(tmp_path: Path) -> None:
    script = (
        "import os; os.access = lambda *_, **__: False; import strongticket.ops; print(os.environ['NUMBA_CACHE_DIR'])"
    )
    environment = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"} | {
        "TMPDIR": str(tmp_path)
    }
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).parent == tmp_path
    assert list(tmp_path.iterdir()) == []
