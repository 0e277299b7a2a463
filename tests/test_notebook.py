"""What is printed of our objects, and what a notebook shows: words that say it, HTML that nothing breaks out of."""

import base64
import re
import struct
import zlib
from html.parser import HTMLParser
from typing import Any

import pytest
import torch
from torch import nn

import strongticket as st
from strongticket.models.transformer import random_transformer
from strongticket.notebook import Markup, card, curves, picture, table
from strongticket.tickets.mask import cells_of

HOSTILE = "<script>alert('1')</script>\"><img src=x onerror=y>\x1b[31m"


class Page(HTMLParser):
    """Reads HTML, and notices what is opened and not closed."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[dict[str, str | None]] = []
        self.words = ""
        self._open: list[str] = []
        self.feed(source)
        self.close()
        assert not self._open, f"{self._open} are not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.append(dict(attrs))
        if tag != "img":
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.append(dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += f"{data} "


def shown(value: Any) -> Page:
    page = Page(value._repr_html_())
    assert set(page.tags) <= {
        "div",
        "strong",
        "table",
        "tr",
        "th",
        "td",
        "img",
        "svg",
        "polyline",
        "circle",
        "text",
        "span",
    }
    assert not {name for found in page.attributes for name in found if name.startswith("on")}
    return page


def opacities(source: str) -> list[list[int]]:
    """Decode the first picture of a page: the fourth byte of each pixel."""
    (data, *_) = re.findall("base64,([^']+)'", source)
    png = base64.b64decode(data)
    width, height = struct.unpack(">II", png[16:24])
    size = int.from_bytes(png[33:37], "big")
    lines = zlib.decompress(png[41 : 41 + size])
    stride = 1 + 4 * width
    return [list(lines[row * stride + 4 : (row + 1) * stride : 4]) for row in range(height)]


def constructed() -> st.Ticket:
    torch.manual_seed(0)
    return st.construct_attention(nn.MultiheadAttention(4, 2), key_width=48, value_width=48, input_norm=1.0)


def searched(**options: Any) -> st.Hidden:
    x = torch.linspace(-1, 1, 64).view(32, 2)
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))
    return st.search(model, [(x, (x.sum(1) > 0).long())] * 20, **options)


def test_a_ticket_says_what_it_is() -> None:
    ticket = constructed()
    error = ticket.certificate.error
    assert repr(ticket).startswith(f"Ticket(attention, seed=0, weights={ticket.numel}, density=0.")
    said = float(repr(ticket).rpartition("error<=")[2].rstrip(")"))
    assert error <= said < 1.01 * error
    page = shown(ticket)
    assert page.tags.count("img") == len(ticket.tensors) == 8
    facts = (ticket.identity, f"{ticket.kept():,} kept", f"{len(ticket.to_bytes()):,} bytes", str(ticket.certificate))
    for fact in (*facts, *ticket.tensors, "48 x 4", f"{ticket.tensors['head.0.query'].density:.4f}"):
        assert fact in page.words


def test_a_mask_is_drawn_as_it_is() -> None:
    mask = st.PackedMask.from_bool(torch.tensor([[True, False, True], [False, False, True]]))
    ticket = st.Ticket(seed=0, tensors=[st.RandomTensor(name="weight", mask=mask)])
    assert opacities(ticket._repr_html_()) == [[255, 0, 255], [0, 0, 255]]


@pytest.mark.parametrize("shape", [(), (1,), (7,), (100, 3), (2, 3, 4), (49, 49)])
def test_a_picture_of_any_mask_is_small_and_keeps_its_density(shape: tuple[int, ...]) -> None:
    mask = st.PackedMask.random(shape, 0.5, seed=1)
    cells = [list(row) for row in cells_of(mask)]
    assert 1 <= len(cells) <= 48 >= len(cells[0])
    assert all(0 <= cell <= 255 for row in cells for cell in row)
    if len(shape) < 2 or max(shape) <= 48:
        assert sum(map(sum, cells)) == 255 * mask.count()


def test_empty_tensors_have_no_picture() -> None:
    mask = st.PackedMask.from_bool(torch.zeros(0, 3, dtype=torch.bool))
    page = shown(st.Ticket(seed=0, tensors=[st.RandomTensor(name="weight", mask=mask)]))
    assert "img" not in page.tags
    assert "0 x 3" in page.words


def test_a_large_ticket_is_shown_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is drawn, coded or counted that takes long; of many tensors some are listed."""
    masks = [st.FullMask((2**11, 2**11)) for _ in range(30)]
    ticket = st.Ticket(seed=0, tensors=[st.RandomTensor(name=f"w{i}", mask=mask) for i, mask in enumerate(masks)])
    monkeypatch.setattr(st.Ticket, "to_bytes", None)
    page = shown(ticket)
    assert page.tags.count("img") == 1
    assert "... and 10 more" in page.words
    assert "w19" in page.words
    assert "w20" not in page.words


def test_what_a_file_says_is_escaped() -> None:
    details = {"unreachable": {"count": HOSTILE}, "parts": [HOSTILE]}
    certificate = st.Certificate(error=0.5, input_norm=1.0, target_sha256="0" * 64, details=details)
    ticket = st.Ticket(seed=0, tensors=[], architecture={"family": HOSTILE}, certificate=certificate)
    for value in (ticket, certificate):
        page = shown(value)
        assert "script" not in page.tags
        assert "<script>alert('1')</script>" in page.words
        assert "\x1b" not in value._repr_html_()
    assert "\x1b" not in repr(ticket)
    assert len(repr(st.Ticket(seed=0, tensors=[], architecture={"family": "a" * 10_000}))) < 200


def test_a_certificate_is_told_in_words_and_never_below_what_is_proved() -> None:
    certificate = st.Certificate(error=0.00123401, input_norm=2.00999, target_sha256="ab" * 32)
    words = "output error at most 0.00124 for every input of norm at most 2"
    assert str(certificate) == words
    assert repr(certificate) == f"Certificate({words}; target abababababababab)"
    assert words in shown(certificate).words
    parts = st.Certificate(error=0.5, input_norm=2.0, target_sha256="ab" * 32, details={"parts": [1, 2, 3]})
    assert str(parts).startswith("each of 3 parts by itself: output error at most 0.5 for")


def test_a_certificate_for_samples() -> None:
    stack = random_transformer(2, 2, key_width=2, generator=torch.Generator().manual_seed(0))
    ticket = st.construct_transformer(stack, key_width=32, value_width=32, hidden_width=32, input_norm=1.0)
    found = st.certify(ticket, stack, [[0.5, 0.5], [0.1, 0.2]])
    assert repr(found) == f"SampleCertificate({found})"
    page = shown(found)
    assert str(found) in page.words
    assert "after each block" in page.words


def test_a_search_shows_its_curves() -> None:
    x = torch.linspace(-1, 1, 64).view(32, 2)
    hidden = searched(steps=40, validation=[(x, (x.sum(1) > 0).long())])
    best = f"best validation loss {hidden.best.loss:.4g} at step {hidden.best.step}"
    assert repr(hidden) == f"Hidden(Sequential, edge-popup, seed=0, density: mlp 0.500, head 0.500; {best})"
    assert [step for step, _ in hidden.curves["validation"]] == list(range(0, 41, 4))
    assert hidden.curves["training"][-1][0] == 40
    page = shown(hidden)
    assert page.tags.count("polyline") == 2
    assert best in page.words
    for name, points in hidden.curves.items():
        assert f" {name} loss {points[-1][1]:.4g} " in page.words
    assert " steps 40 " in page.words, "the axis and its end"
    assert repr(hidden.best) == f"Snapshot(step={hidden.best.step}, loss={hidden.best.loss!r})"
    assert "2.weight" in page.words
    alone = searched()
    assert not alone.curves["validation"]
    assert shown(alone).tags.count("polyline") == 1


def test_a_single_layer_keeps_its_name() -> None:
    """Though torch gives a module with parametrizations another class."""
    hidden = st.hide(nn.Linear(2, 4), st.Policy(density=0.5), seed=0)
    assert repr(hidden).startswith("Hidden(Linear, ")


def test_a_module_that_was_only_hidden_has_no_curve() -> None:
    hidden = st.hide(nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2)), st.Policy(density=0.5), seed=3)
    assert repr(hidden) == "Hidden(Sequential, edge-popup, seed=3, density: mlp 0.500, head 0.500; 0 steps)"
    assert "svg" not in shown(hidden).tags


def test_a_policy_prints_what_was_chosen_and_reads_back() -> None:
    assert repr(st.Policy()) == "Policy()"
    policy = st.Policy(embeddings="trained", density=0.5, densities={"*.weight": 0.1})
    assert repr(policy) == "Policy(embeddings='trained', density=0.5, densities={'*.weight': 0.1})"
    assert eval(repr(policy), {"Policy": st.Policy}) == policy
    page = shown(policy)
    for word in ("embeddings", "trained", "0.5", "edge-popup", "*.weight"):
        assert word in page.words


def test_an_attention_prints_its_sizes() -> None:
    attention = st.Attention.from_torch(nn.MultiheadAttention(6, 2))
    sizes = "n_heads=2, d_model=6, key_width=3, value_width=3, d_out=6, query_bias, output_bias"
    assert repr(attention) == f"Attention({sizes})"
    assert "n_heads 2 d_model 6" in shown(attention).words
    assert repr(attention.merged()) == "MergedAttention(n_heads=2, d_model=6, d_out=6, query_bias, output_bias)"


def test_cards_escape_everything_but_what_is_made_here() -> None:
    source = card(HOSTILE, {HOSTILE: HOSTILE}, table((HOSTILE,), [(HOSTILE,)]), picture([b"\0"], HOSTILE))
    page = Page(source)
    assert set(page.tags) == {"div", "strong", "table", "tr", "th", "td", "img"}
    assert page.tags.count("img") == 1
    assert "<b>" in card("", {"a": Markup("<b>made here</b>")})
    assert len(card("", {"a": "x" * 10_000})) < 1000


@pytest.mark.parametrize("points", [[(0, 1.0)], [(0, 1.0), (5, 1.0)], [(0, -2.0), (1, 3.0), (2, 1e-9)]])
def test_curves_stay_inside(points: list[tuple[float, float]]) -> None:
    page = Page(curves({"a": points, "none": []}, "step"))
    (line,) = [found["points"] for found in page.attributes if "points" in found]
    places = [tuple(map(float, place.split(","))) for place in str(line).split()]
    assert len(places) == len(points)
    assert all(0 <= x <= 360 and 0 <= y <= 140 for x, y in places)
    assert curves({"none": []}, "step") == ""
