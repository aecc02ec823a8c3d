"""The notebooks run from their first cell to their last; they are kept without outputs."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

REPOSITORY = Path(__file__).resolve().parent.parent
NOTEBOOKS = pytest.mark.parametrize(
    "path",
    [REPOSITORY / "docs" / "tutorial.ipynb", REPOSITORY / "examples" / "papers.ipynb"],
    ids=lambda path: path.stem,
)


@NOTEBOOKS
def test_it_is_kept_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.filterwarnings("ignore")  # of what runs notebooks
@NOTEBOOKS
def test_it_runs(path, empty_url, tmp_path, monkeypatch):
    monkeypatch.setenv("PG_HASHINDEX_DATABASE_URL", empty_url)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    NotebookClient(
        nbformat.read(path, as_version=4),
        timeout=120,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    ).execute()
