"""What the repository says about itself: one version, one way to run the checks, and nothing fetched by a hook."""

import re
import subprocess
import tomllib
from pathlib import Path

import yaml

from strongticket import __version__

ROOT = Path(__file__).parents[1]


def text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def test_there_is_one_version_and_it_is_a_release() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
    released = re.search(
        rf"^## \[{re.escape(__version__)}\] - (\d{{4}}-\d\d-\d\d)$", text("CHANGELOG.md"), re.MULTILINE
    )
    assert released is not None, "CHANGELOG.md must have a section for the version"
    cited = yaml.safe_load(text("CITATION.cff"))
    assert (cited["version"], str(cited["date-released"])) == (__version__, released[1])


def test_the_changelog_has_the_usual_headings() -> None:
    headings = re.findall(r"^### (.*)$", text("CHANGELOG.md"), re.MULTILINE)
    assert "Added" in headings
    assert set(headings) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_workflow_runs_what_everybody_runs_and_no_more() -> None:
    """`.ci/run` is the only list of what must pass; a second one would drift away from it."""
    job = yaml.safe_load(text(".github/workflows/ci.yml"))["jobs"]["ci"]
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    (python,) = [step["with"]["python-version"] for step in job["steps"] if "setup-python" in step.get("uses", "")]
    required = tomllib.loads(text("pyproject.toml"))["project"]["requires-python"]
    assert required == f">={python}", "CI runs on the oldest Python that is promised"
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111, ".ci/run can be executed"


def test_hooks_run_the_tools_of_this_environment_and_fetch_nothing() -> None:
    (repository,) = yaml.safe_load(text(".pre-commit-config.yaml"))["repos"]
    assert repository["repo"] == "local"
    # The same tools as `make check`, which adds the README's examples.
    check = set(re.findall(r"^\t\$\(BIN\)/(ruff \w+|mypy)", text("Makefile"), re.MULTILINE))
    assert {" ".join(hook["entry"].removeprefix(".venv/bin/").split()[:2]) for hook in repository["hooks"]} == check
    assert all(hook["language"] == "system" for hook in repository["hooks"])


def test_forms_for_issues_and_pull_requests_can_be_read() -> None:
    forms = [yaml.safe_load(text(f".github/ISSUE_TEMPLATE/{name}.yml")) for name in ("bug", "idea")]
    for form in forms:
        assert {"name", "description", "body"} <= form.keys()
        assert len({part["id"] for part in form["body"]}) == len(form["body"])
    assert "make test" in text(".github/pull_request_template.md")


def test_help_lists_every_target_and_clean_removes_what_is_ignored() -> None:
    makefile = text("Makefile")
    (phony,) = re.findall(r"^\.PHONY: ((?:.*\\\n)*.*)$", makefile, re.MULTILINE)
    helped = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {line.split()[0] for line in helped.splitlines()} == set(phony.replace("\\", " ").split())
    clean = makefile[makefile.index("\nclean:") :]
    removed = clean.replace("$(VENV)", ".venv").replace("$(OLDEST)", ".venv-oldest").split()
    kept = {"out", "carry"}  # results, which took time to make, and what was put there by hand
    compiled = {"*.nbi", "*.nbc", ".ipynb_checkpoints"}  # inside __pycache__, or an editor's own
    ignored = {line.strip("/") for line in text(".gitignore").splitlines() if line and not line.startswith("#")}
    assert {name for name in ignored - kept - compiled if not any(word.endswith(name) for word in removed)} == set()
