"""The site that `make docs` builds, where what makes it is installed."""

import html
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

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


class Names(HTMLParser):
    """What a page links to and shows, and the places in it that can be linked to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.places: set[str] = set()
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name in ("href", "src"):
                self.links.add(value)
            if value and name in ("id", "name"):
                self.places.add(value)


def test_every_link_leads_somewhere(site: Path) -> None:
    pages = {page: Names(page) for page in site.rglob("*.html") if page.name != "404.html"}
    assert len(pages) > 25
    broken = []
    for page, names in pages.items():
        for link in names.links:
            address = urlsplit(link)
            if address.scheme or address.netloc:
                continue
            target = page.parent / unquote(address.path) if address.path else page
            target = target / "index.html" if target.is_dir() else target
            place = "" if address.fragment in ("only-light", "only-dark", "__skip") else unquote(address.fragment)
            known = pages.get(target.resolve())
            if not target.exists() or (place and known and place not in known.places):
                broken.append(f"{page.name}: {link}")
    assert broken == []


def test_pictures_have_a_dark_twin_on_dark_pages(site: Path) -> None:
    """Each PNG with a `-dark` file beside it is shown as the pair; the theme hides one of them."""
    twins = {picture.name for picture in (ROOT / "docs").glob("*-dark.*")}
    for page in site.glob("*.html"):
        shown = re.findall(r'<img [^>]*src="([^"]+)"', page.read_text("utf-8"))
        for picture in shown:
            name, _, when = picture.partition("#")
            stem, _, ending = name.rpartition(".")
            if f"{stem}-dark.{ending}" in twins:
                assert when == "only-light", f"{page.name}: {picture}"
                assert f"{stem}-dark.{ending}#only-dark" in shown


def test_search_finds_what_people_look_for(site: Path) -> None:
    documents = json.loads((site / "search" / "search_index.json").read_text("utf-8"))["docs"]
    for word, page in {"accuracy": "faq", "cite": "faq", "resume": "faq", "changelog": "changelog"}.items():
        found = {each["location"].partition(".html")[0] for each in documents if word in each["title"].lower()}
        assert page in found, f"no heading of {page}.md has the word {word}"


def test_the_changelog_is_the_repositorys(site: Path) -> None:
    page = (site / "changelog.html").read_text("utf-8")
    for heading in re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE):
        assert re.sub(r"[\[\]]", "", heading).split(" ")[0] in page


def test_every_command_is_in_the_reference(site: Path) -> None:
    page = (site / "commands.html").read_text("utf-8")
    for command in ("search", "construct", "bound attention", "bench decode", "verify"):
        assert f"Usage: strongticket {command} " in page


def test_examples_in_docstrings_are_shown_as_code(site: Path) -> None:
    page = "\n".join(page.read_text("utf-8") for page in site.glob("reference-*.html"))
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
            name, _, look = picture.partition("#")
            assert (site / "notebooks" / name).read_bytes().startswith(b"\x89PNG")
            assert f'[data-md-color-scheme="slate"] img[src$="#{look}"]' in (site / "site.css").read_text("utf-8")
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
