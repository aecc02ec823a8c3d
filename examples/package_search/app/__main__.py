"""``python -m app``: everything at once, on an embedded PostgreSQL."""

import argparse
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import alembic.command
import psycopg
import uvicorn
from alembic.config import Config

from pg_hashindex import HashIndexError, connect, sampling, store, training
from pg_hashindex.server import EmbeddedServer

from .loading import load
from .main import create_app
from .settings import VARIABLE, database_url

_DATABASE = "package_search"
_ALEMBIC = Config(Path(__file__).parents[1] / "alembic.ini")
_SIMILAR = "/packages/4959/similar?k=3"  # to nginx


def main() -> None:
    """Make a database of packages, and search it by HTTP."""
    parser = argparse.ArgumentParser(prog="python -m app", description=main.__doc__)
    parser.add_argument(
        "--serve",
        type=int,
        nargs="?",
        const=8000,
        metavar="PORT",
        help="keep serving until Ctrl-C, at port 8000 by default",
    )
    parser.add_argument(
        "--data-dir",
        default=os.environ.get("PG_HASHINDEX_SERVER_DIR") or None,
        help="folder of the embedded server's data",
    )
    arguments = parser.parse_args()
    try:
        with (
            socket.create_server(("127.0.0.1", arguments.serve or 0)) as listener,
            EmbeddedServer(arguments.data_dir) as server,
        ):
            _run(server, listener, stay=arguments.serve is not None)
    except (HashIndexError, OSError, OverflowError) as error:
        parser.exit(1, f"error: {error}\n")
    except KeyboardInterrupt:
        pass


def _run(server: EmbeddedServer, listener: socket.socket, *, stay: bool) -> None:
    with psycopg.connect(server.uri(), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {_DATABASE} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {_DATABASE}")
    os.environ[VARIABLE] = server.uri(_DATABASE)

    # The tables first, since a model is trained on rows; then the index, which needs the model.
    _upgrade("0001")
    print(f"loaded {load()} packages")
    _train("packages_384", 384)
    _upgrade("0002")
    with _served(listener) as address:
        _ask(address, _SIMILAR)
        _ask(address, f"{_SIMILAR}&section=python&prefix=python3-")

        print("\nAnother model takes over while the app serves:")
        _train("packages_576", 576)
        _upgrade("head")
        _ask(address, _SIMILAR)
        _ask(address, "/health")
        if stay:
            print(f"\nserving at http://{address}/docs until Ctrl-C", flush=True)
            threading.Event().wait()


def _upgrade(revision: str) -> None:
    alembic.command.upgrade(_ALEMBIC, revision)
    print(f"upgraded to revision {revision}")


def _train(name: str, n_bits: int) -> None:
    with connect(database_url()) as connection:
        rows = sampling.sample_table(connection, "packages", "embedding").X
        model = training.train(rows, name, "itq", n_bits=n_bits, metric="cosine")
        store.save(connection, model)
    print(f"trained model {name} on {len(rows)} rows")


@contextmanager
def _served(listener: socket.socket) -> Iterator[str]:
    """Serve the app in a thread; its address."""
    server = uvicorn.Server(uvicorn.Config(create_app(), log_level="warning"))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield "{}:{}".format(*listener.getsockname())
    finally:
        server.should_exit = True
        thread.join()


def _ask(address: str, path: str) -> None:
    connection = HTTPConnection(address)
    connection.request("GET", path)
    response = connection.getresponse()
    answer: Any = json.load(response)
    connection.close()
    print(f"\nGET {path}: {response.status} {response.reason}")
    for line in answer if isinstance(answer, list) else [answer]:
        if "distance" in line:
            line = f"{line['distance']:.3f}  {line['name']}: {line['description']}"
        print(f"  {line}")


if __name__ == "__main__":
    main()
