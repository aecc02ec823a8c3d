"""Drawing what evaluate prints."""

from collections.abc import Callable

import pytest
from click.testing import Result

from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.newest

Run = Callable[..., Result]


@pytest.fixture
def index(connection, items, model):
    made = HashIndex.create(connection, "i", table=items, column="embedding", model="lsh")
    made.encode()
    return made.configure(candidates=30)


def test_curves(on, index, tmp_path):
    evaluate = ("evaluate", "i", "--queries", 5, "--candidates", 20, "--candidates", 40)
    plot = tmp_path / "recall.svg"
    result = on(*evaluate, "--save", "a", "--plot", plot)
    assert result.stderr.endswith(f"wrote {plot}\n")
    # Letters are drawn as shapes; what they spell stands beside them.
    for word in (b"<!-- i, 5 queries -->", b"<!-- 40 -->", b"<!-- 95th percentile -->"):
        assert word in plot.read_bytes()
    # The figure is there where the recall is too low, too.
    plot.unlink()
    on(*evaluate, "--fail-under", 1, "--plot", plot, code=1)
    assert plot.exists()
    history = tmp_path / "history.svg"
    printed = on("evaluate", "i", "--history", "--plot", history)
    assert printed.stdout == on("evaluate", "i", "--history").stdout
    assert b"<!-- set a, 30 candidates, k 10 -->" in history.read_bytes()


def test_what_is_refused(on, index, tmp_path):
    history = ("evaluate", "i", "--history")
    result = on(*history, "--plot", tmp_path / "a.svg", code=3)
    assert "no recall is recorded" in result.stderr
    assert "does not end in" in on("evaluate", "i", "--plot", tmp_path / "a", code=3).stderr
    for option in (("--sets",), ("--drop-set", "x")):
        message = on("evaluate", "i", *option, "--plot", tmp_path / "a.svg", code=2).stderr
        assert "--plot draws an evaluation or --history" in message
    assert not list(tmp_path.iterdir())
