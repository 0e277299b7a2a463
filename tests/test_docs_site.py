"""The site that `make docs` builds, where what makes it is installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="needs what `make docs` installs: pip install 'strongticket[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def test_examples_in_docstrings_are_shown_as_code(site: Path) -> None:
    page = (site / "reference.html").read_text("utf-8")
    assert page.count('<span class="gp">&gt;&gt;&gt; </span>') > 20
    assert "<blockquote>" not in page, "a >>> was taken for a quotation"


def test_search_is_hidden_in_a_page_opened_from_a_folder(site: Path) -> None:
    """The script marks the page, as a browser runs it, and the style sheet hides what is marked."""
    if (browser := shutil.which("chromium")) is None:
        pytest.skip("needs chromium on the path")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    page = subprocess.run([browser, *flags, (site / "index.html").as_uri()], capture_output=True, text=True).stdout
    opening = page[: page.index("<head>")]
    assert "from-folder" in opening
    assert ".from-folder :is(.md-search, label" in (site / "site.css").read_text("utf-8")
