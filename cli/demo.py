"""``pg-hashindex demo``: the whole way, from vectors to answers, on an embedded PostgreSQL."""

import shlex
import shutil
import sys
import time
from pathlib import Path

import click

from pg_hashindex import store
from pg_hashindex.db.connection import Connection, connect
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.quality.evaluate import evaluate
from pg_hashindex.server import EmbeddedServer
from pg_hashindex.server.data import Packages
from pg_hashindex.server.demo import DATABASE, TABLE, create_database
from pg_hashindex.training import train
from pg_hashindex.training.sampling import sample_table

from ._shared import echo, note, print_evaluation, progress
from .server import find_server, server_options

_METHOD = "itq"
_ASKED = ("nginx", "fluidsynth", "python3-sklearn")
_CANDIDATES = (25, 50, 100, 200)


@click.command()
@server_options
@click.option("--stop", is_flag=True, help="Stop the server at the end.")
def demo(data_dir: Path | None, pg_version: str | None, stop: bool) -> None:
    """Train, index, search and evaluate 5,000 package descriptions.

    Starts the embedded PostgreSQL, drops and creates database pg_hashindex_demo, and leaves the
    server running for you to try more.
    """
    started = time.perf_counter()
    server = find_server(data_dir, pg_version)
    note(f"starting PostgreSQL {server.version} in {server.data_dir}")
    # If the demo fails, the server stops with it.
    server.start(until_exit=True)
    note(f"making database {DATABASE}, and loading the packages")
    packages = create_database(server)
    with connect(server.uri(DATABASE)) as connection:
        index = _index(connection)
        _print_neighbours(index, packages)
        _print_recall(index)
        _print_sizes(index)
    note(f"done in {time.perf_counter() - started:.0f} s")
    if stop:
        server.stop()
        return
    server.keep_running()
    _print_next(server)


def _index(connection: Connection) -> HashIndex:
    rows = sample_table(connection, TABLE, "embedding").X
    model = store.save(connection, train(rows, _METHOD, _METHOD, metric="cosine"))
    note(
        f"trained {_METHOD}: {model.n_bits} bits from {model.training['rows']} rows in "
        f"{model.training['seconds']:.1f} s, bits with ones in "
        f"{model.training['share_of_ones']['mean']:.0%} of the rows"
    )
    name = f"{TABLE}_{_METHOD}"
    with progress(f"creating index {name}"):
        return HashIndex.create(connection, name, table=TABLE, column="embedding", model=_METHOD)


def _print_neighbours(index: HashIndex, packages: Packages) -> None:
    row = index.row
    echo(f"\nNearest packages by {row.name} ({row.n_bits} bits, {row.method}):")
    for name in _ASKED:
        position = packages.name.index(name)
        echo(f"\n  {name}: {packages.text[position]}")
        for hit in index.search(packages.embedding[position], 5)[1:]:
            found = hit.id - 1
            echo(f"    {hit.distance:.3f}  {packages.name[found]}: {packages.text[found]}")


def _print_recall(index: HashIndex) -> None:
    result = evaluate(index, queries=100, candidates=_CANDIDATES)
    echo(f"\n{index.name}, {result.queries} rows searched for among the others:")
    print_evaluation(result)


def _print_sizes(index: HashIndex) -> None:
    row = index.row
    echo(
        f"\nOne code takes {row.n_bits // 8} bytes, one vector {4 * row.dimension}; HNSW over the "
        f"codes {row.relation_bytes() / 1e6:.1f} MB."
        "\n5,000 rows are too few for codes to be faster than an exact search."
    )


def _print_next(server: EmbeddedServer) -> None:
    # A virtual environment that is not active is not on PATH.
    folder = Path(sys.executable).parent
    on_path = shutil.which("pg-hashindex") == str(folder / "pg-hashindex")
    path = "" if on_path else f"export PATH={shlex.quote(str(folder))}:$PATH\n  "
    echo(
        f"""
Try next, in psql:
  {server.psql_command(DATABASE)}

  SELECT p.name, s.distance
  FROM hashindex.search_packages_itq(
      (SELECT embedding FROM packages WHERE name = 'nginx'), k => 5) s
  JOIN packages p USING (id) ORDER BY s.distance;

  SELECT * FROM hashindex.search('packages_itq', (SELECT embedding FROM packages WHERE id = 1),
      where_equals => '{{"section": "games"}}');

  SELECT hashindex.recall('packages_itq');

or from the shell:
  {path}export PG_HASHINDEX_DATABASE_URL='{server.uri(DATABASE)}'
  pg-hashindex search packages_itq --like 1

The server keeps running; stop it with:
  pg-hashindex server stop --data-dir {shlex.quote(str(server.data_dir))}"""  # noqa: S608 (printed, not run)
    )
