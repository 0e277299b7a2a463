"""The notebooks in examples/: run them as a reader would, and keep what they show.

    python -m tests.notebooks

`make notebooks` does this after a change. tests/test_notebooks.py runs them again and asks for their results.
"""

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def run(path: Path, folder: Path, ask: str = "None") -> tuple[Any, Any]:
    """Run every cell in a folder, with the source beside this file; give the notebook and what `ask` evaluates to."""
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(f"import json\nprint(json.dumps({ask}))"))
    source = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    # One thread: networks this small only lose by sharing, and most where cores are busy.
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    client = NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    client.coalesce_streams = True  # how a kernel's output is cut is a matter of time
    client.extra_arguments = ["--log-level=ERROR"]  # it warns that it is reached by TCP, which stays on this machine
    client.execute(env=environment)
    answer = json.loads(notebook.cells.pop().outputs[0].text)
    return notebook, answer


def strip(notebook: Any) -> None:
    """Leave out what says when and where a notebook was run, and nothing about what it shows."""
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    for cell in notebook.cells:
        cell.metadata = {}
        for output in cell.get("outputs", []):
            output.pop("metadata", None) if output.output_type == "stream" else output.update(metadata={})


if __name__ == "__main__":
    for path in NOTEBOOKS:
        with TemporaryDirectory() as folder:
            notebook, _ = run(path, Path(folder))
        strip(notebook)
        nbformat.write(notebook, path)
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")
