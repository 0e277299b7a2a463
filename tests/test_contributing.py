"""The recipes of CONTRIBUTING.md, each followed to the letter in a copy of the source."""

import json
import lzma
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


SEVERAL = """
import json, sys
from typer.testing import CliRunner
from strongticket.cli.main import app
done = [CliRunner().invoke(app, line) for line in json.loads(sys.argv[1])]
assert not any(run.exit_code for run in done), [run.output for run in done]
print(json.dumps([run.stdout for run in done]))
"""


class Recipe:
    """A section of the page: its blocks of code by language, and the copy of the source it is followed in."""

    def __init__(self, title: str, folder: Path) -> None:
        page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
        (self.text,) = re.findall(rf"### {title}\n(.*?)(?=\n### |\Z)", page, flags=re.DOTALL)
        self.folder = folder
        self.package = folder / "src" / "strongticket"
        shutil.copytree(ROOT / "src" / "strongticket", self.package, ignore=shutil.ignore_patterns("*.pyc"))
        # Little to validate on, which else takes most of a short run's time.
        valid = self.package / "data" / "sample" / "valid.txt.xz"
        valid.write_bytes(lzma.compress(lzma.decompress(valid.read_bytes())[:2_000]))

    def blocks(self, language: str) -> list[str]:
        return re.findall(rf"```{language}\n(.*?)```", self.text, flags=re.DOTALL)

    def write(self, path: str, content: str) -> int:
        """Write a file into the copy, and give its number of lines, which the page states."""
        (self.package / path).write_text(content)
        return len(content.splitlines())

    def replace(self, path: str, old: str, new: str) -> None:
        source = (self.package / path).read_text()
        assert source.count(old) == 1
        (self.package / path).write_text(source.replace(old, new))

    def run(self, *command: str) -> str:
        paths = {"PYTHONPATH": str(self.folder / "src"), "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(
            [sys.executable, *command], cwd=self.folder, env=os.environ | paths, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def tell(self, *lines: list[str]) -> list[str]:
        """Run several commands in one process, which imports torch once."""
        told: list[str] = json.loads(self.run("-c", SEVERAL, json.dumps(lines)))
        return told

    def command(self) -> list[str]:
        """Give the arguments of the command it shows."""
        (command,) = self.blocks("bash")
        words = shlex.split(command.replace("\\\n", ""))
        assert words.pop(0) == "strongticket"
        return words


def test_add_a_search_rule(tmp_path: Path) -> None:
    recipe = Recipe("Add a search rule", tmp_path)
    rule, line = recipe.blocks("python")
    lines = recipe.write("learn/rules/above_zero.py", rule)
    assert lines <= 60
    assert f"{lines} lines here" in recipe.text
    recipe.replace("learn/rules/__init__.py", "\n}\n", f"\n{line}}}\n")
    ticket = str(tmp_path / "out" / "above-zero" / "seed-0" / "best.ticket")
    evaluate = ["evaluate", ticket, "--data", "sample"]
    _, shown, _, evaluated = recipe.tell(recipe.command(), ["show", ticket], ["verify", ticket], evaluate)
    assert "strong" in shown
    assert "NOT" not in evaluated


BIOGPT = """
import runpy, torch, strongticket as st
from transformers import BioGptConfig, BioGptModel
runpy.run_path("biogpt.py")
torch.manual_seed(0)
sizes = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
model = BioGptModel(BioGptConfig(vocab_size=30, max_position_embeddings=16, **sizes)).eval()
with torch.no_grad():
    for parameter in model.parameters():
        parameter += 0.2 * torch.randn_like(parameter)
    ids = torch.randint(30, (2, 7))
    ticket = st.construct_pretrained(model, items=16, what="attention+mlp")
    original, merged = model(ids).last_hidden_state, st.attach(model, ticket)(ids).last_hidden_state
print((merged - original).abs().max().item() / original.abs().max().item())
"""


def test_add_a_model_family(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="families are those of transformers, which is not installed")
    recipe = Recipe("Add a model family", tmp_path)
    (family,) = recipe.blocks("python")
    lines = [line for line in family.splitlines() if line and not line.startswith("from ")]
    assert len(lines) <= 15
    assert f"BioGPT in {len(lines)}" in recipe.text
    (tmp_path / "biogpt.py").write_text(family)
    assert float(recipe.run("-c", BIOGPT)) < 0.05


def test_add_a_figure(tmp_path: Path) -> None:
    recipe = Recipe("Add a figure", tmp_path)
    figure, line = recipe.blocks("python")
    lines = recipe.write("experiments/widths.py", figure)
    assert f"{lines} lines here" in recipe.text
    recipe.replace("experiments/__init__.py", 'CONSTRUCTIONS = ("fig4", "fig5", "fig6", "theorem3", "scans")\n', line)
    report = ["report", "out", "--out", "report.html"]
    shown, _ = recipe.tell(recipe.command(), report)
    assert "A smaller error asks for little more width" in shown
    folder = tmp_path / "out" / "widths"
    assert {path.name for path in folder.iterdir()} == {"result.json", "widths.png", "widths.svg"}
    assert "A smaller error asks for little more width" in (tmp_path / "report.html").read_text()
