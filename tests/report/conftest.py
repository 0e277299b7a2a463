"""Pages to look at, and a browser to look with."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

from strongticket import construct_attention
from strongticket.experiments.figure import load_figure, reproduce_figure
from strongticket.experiments.text_figure import Choice
from strongticket.report import write_report
from tests.small_tickets import small_ticket

ROOT = Path(__file__).parents[2]
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def subset_sums(**fields: Any) -> dict[str, Any]:
    """Give a row of `bench subset-sum`."""
    row = {"op": "subset_sum", "label": fields["engine"], "threads": 1, "clock": "cpu", "rows": 1, "timeouts": 0}
    return row | {"checked": 1, "times_slower": 1.0, "median_error": 0.0, "optimal_share": 1.0} | fields


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Start the machine's Chromium. Where there is none, tests are skipped by hand and fail in CI."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        reason = "the report's tests need a browser: install chromium"
        if os.environ.get("STRONGTICKET_NEEDS_BROWSER"):
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


class Visit:
    """A page that was opened, with everything it complained about or asked the network for."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self._note_request)

    def _note(self, message: ConsoleMessage) -> None:
        self.complaints.append(f"{message.type}: {message.text}")

    def _note_request(self, request: Request) -> None:
        if request.resource_type != "document":
            self.requests.append(request.url)

    def open(self, file: Path) -> "Visit":
        """Open a file as a double click does."""
        self.page.goto(file.as_uri())
        return self

    def section(self, anchor: str) -> Any:
        """Find a section."""
        return self.page.locator(f"section#{anchor}")


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    """Give a desktop-sized page; whatever a test does with it, nothing may be complained about or fetched."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    visited = Visit(context.new_page())
    yield visited
    assert visited.complaints == []
    assert visited.requests == []
    context.close()


@pytest.fixture(scope="session")
def text_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Figures 7 and 8 from rows as runs leave them; only their losses are made up."""
    out = tmp_path_factory.mktemp("text")
    choice = Choice(schedule="short", models={"nano": 3})
    for name in ("fig7", "fig8"):
        figure = load_figure(name)
        rows = []
        for config in figure.plan.runs(choice):
            # By settings alone: the figures share runs, which have one outcome.
            place = 0.0 if config.mode == "dense" else float(config.policy.qk_scale)
            loss = 4 + 0.1 * config.seed + 0.01 * place
            rows.append(
                {
                    "config": config.as_json(),
                    "text": {"data": "a text", "digest": "0"},
                    "best_validation_loss": loss,
                    "final_validation_loss": loss + 0.01,
                    "curve": [[0, 6.0], [10, loss]],
                    "nonzero": {"all": 10_000 + round(place), "without_embeddings": 1000 + round(place)},
                    "also": {},
                    "run": {
                        "seconds": 2.0,
                        "tokens_per_second": 1e5,
                        "gpu": "a GPU",
                        "date": "2026-11-15T00:00:00+00:00",
                    },
                }
            )
        (out / name).mkdir()
        (out / name / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        reproduce_figure(figure, choice, out)
    return out


@pytest.fixture(scope="session")
def tickets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ticket with every feature, and a constructed one."""
    folder = tmp_path_factory.mktemp("tickets")
    small_ticket().save(folder / "small.ticket")
    torch.manual_seed(0)
    target = torch.nn.MultiheadAttention(4, num_heads=2)
    construct_attention(target, key_width=48, value_width=48, seed=0, input_norm=1.0).save(folder / "attention.ticket")
    return folder


@pytest.fixture(scope="session")
def full_page(tmp_path_factory: pytest.TempPathFactory, text_results: Path, tickets: Path) -> Path:
    """A page with everything: the committed results and rows, figures on text, tickets."""
    out = tmp_path_factory.mktemp("page") / "report.html"
    write_report([ROOT / "results", text_results, tickets], out)
    return out
