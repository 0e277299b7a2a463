"""The site that `make docs` builds, where what makes it is installed."""

import html
import json
import os
import re
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


def test_notebooks_are_pages_with_their_outputs_and_pictures(site: Path) -> None:
    for notebook in (ROOT / "examples" / "notebooks").glob("*.ipynb"):
        page = (site / "notebooks" / f"{notebook.stem}.html").read_text("utf-8")
        cells = json.loads(notebook.read_bytes())["cells"]
        printed = [output["text"] for cell in cells for output in cell.get("outputs", []) if "text" in output]
        assert printed
        assert all(html.escape(text[0].strip(), quote=False) in page for text in printed)
        for alt, picture in re.findall(r'<img alt="([^"]*)" src="([^"]*)"', page):
            assert len(alt) > 20, "the comment that starts the cell describes its picture"
            assert (site / "notebooks" / picture).read_bytes().startswith(b"\x89PNG")
        assert '<img alt="' in page
        assert (site / "notebooks" / notebook.name).read_bytes() == notebook.read_bytes()


def test_search_is_hidden_in_a_page_opened_from_a_folder(site: Path) -> None:
    """The script marks the page, as a browser runs it, and the style sheet hides what is marked."""
    if (browser := shutil.which("chromium")) is None:
        pytest.skip("needs chromium on the path")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    page = subprocess.run([browser, *flags, (site / "index.html").as_uri()], capture_output=True, text=True).stdout
    opening = page[: page.index("<head>")]
    assert "from-folder" in opening
    assert ".from-folder :is(.md-search, label" in (site / "site.css").read_text("utf-8")
