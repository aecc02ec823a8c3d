"""pg_dump takes everything along: the restored database gives the same answers."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from fixtures.checks import assert_fresh

from pg_hashindex.database import connect
from pg_hashindex.index import HashIndex
from pg_hashindex.server import EmbeddedServer


@pytest.mark.parametrize("parallel", [False, True])
def test_dump_and_restore(
    server: EmbeddedServer,
    index: HashIndex,
    url: str,
    make_database: Callable[[str], str],
    tmp_path: Path,
    parallel: bool,
) -> None:
    before = [index.search([float(n)] * 8, 20, candidates=40) for n in range(5)]
    restored = make_database("template0")
    dump, target = tmp_path / "dump", ["--dbname", restored]
    # Several jobs ask for the directory format.
    form = ["--format=directory", "--jobs=2"] if parallel else ["--format=custom"]
    for command in (
        ["pg_dump", *form, "--file", dump, url],
        ["pg_restore", "--exit-on-error", *(["--jobs=2"] if parallel else []), *target, dump],
    ):
        program = server.bin_dir / str(command[0])
        subprocess.run([program, *command[1:]], check=True, env={**os.environ, "LC_ALL": "C"})
    with connect(restored) as connection:
        again = HashIndex.open(connection, "items_idx")
        assert [again.search([float(n)] * 8, 20, candidates=40) for n in range(5)] == before
        assert_fresh(again)
        connection.execute("UPDATE items SET embedding = '[8,7,6,5,4,3,2,1]' WHERE id < 10")
        connection.execute("DELETE FROM items WHERE id > 290")
        assert_fresh(again)
        assert again.encode() == 0
        again.drop()
