"""The notebook of the tutorial runs from its first cell to its last; it is kept without outputs."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).resolve().parent.parent / "docs" / "tutorial.ipynb"


def test_it_is_kept_without_outputs():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.filterwarnings("ignore")  # of what runs notebooks
def test_the_tutorial(empty_url, tmp_path, monkeypatch):
    monkeypatch.setenv("PG_HASHINDEX_DATABASE_URL", empty_url)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    NotebookClient(
        nbformat.read(NOTEBOOK, as_version=4),
        timeout=60,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    ).execute()
