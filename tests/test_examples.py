"""Each example runs on the demo's database, says something, and leaves nothing behind."""

import os
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import psycopg
import pytest
from fixtures.pages import REPOSITORY

from pg_hashindex import store
from pg_hashindex.db.connection import connect as hashindex_connect
from pg_hashindex.hashers import LSH

NAMES = re.compile(r"""(?:train\('|to_model\("|\(\(?")(\w+)['"]""")

EXAMPLES = sorted((REPOSITORY / "examples").glob("*.py"))
LEFT = """
    SELECT 'index ' || name FROM hashindex.index
    UNION ALL SELECT format('model %s:%s', name, version) FROM hashindex.model
    UNION ALL SELECT 'schema ' || nspname FROM pg_namespace WHERE nspname !~ '^pg_'
    UNION ALL SELECT c.oid::regclass::text FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname !~ '^pg_'
    UNION ALL SELECT p.oid::regprocedure::text FROM pg_proc p
    JOIN pg_namespace n ON n.oid = p.pronamespace WHERE nspname !~ '^pg_' ORDER BY 1
"""


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short(example):
    lines = example.read_text().splitlines()
    assert len(lines) <= 80
    assert lines[0].startswith('"""')


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(example, make_database, demo_template, tmp_path):
    url = make_database(demo_template)
    environment = os.environ | {"PG_HASHINDEX_DATABASE_URL": url, "PYTHONWARNINGS": "ignore"}
    with psycopg.connect(url, autocommit=True) as connection:
        # Models of the reader's that have the names of theirs, and of the first page.
        model = LSH(n_bits=8).fit(np.eye(384)).to_model("texts", metric="cosine")
        with hashindex_connect(url) as kept:
            for name in {"texts", *NAMES.findall(example.read_text())}:
                store.save(kept, replace(model, name=name))
        before = connection.execute(LEFT).fetchall()
        done = subprocess.run(
            [sys.executable, example],
            env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) >= 1
        # So it can be run again.
        assert connection.execute(LEFT).fetchall() == before
    assert [*tmp_path.iterdir()] == []
