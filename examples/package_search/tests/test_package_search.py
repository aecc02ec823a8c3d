"""Compare the application's answers with brute force in SQL."""

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx
import numpy as np
import psycopg
import pytest
from app.main import create_app
from app.models import DIMENSION
from app.settings import VARIABLE


def exact(url: str, vector: Any, condition: str, k: int) -> list[tuple[int, float]]:
    """The answer of a search by brute force: keys and distances."""
    query = f"""
        SELECT p.id, p.embedding <=> %(vector)s::vector FROM packages p
        WHERE {condition} ORDER BY 2, 1 LIMIT %(k)s
    """
    with psycopg.connect(url) as connection:
        return connection.execute(query.encode(), {"vector": str(vector), "k": k}).fetchall()


def embedding_of(url: str, package: int) -> list[float]:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT embedding::text FROM packages WHERE id = %s", [package])
        return list(map(float, json.loads(row.fetchone()[0])))


def found(response: httpx.Response) -> list[tuple[int, float]]:
    assert response.status_code == 200, response.text
    return [(hit["id"], hit["distance"]) for hit in response.json()]


async def test_answers_are_nearly_those_of_brute_force(
    client: httpx.AsyncClient, ready: str
) -> None:
    hits = 0
    for package in range(100, 5000, 250):
        truth = exact(ready, embedding_of(ready, package), f"id <> {package}", 10)
        answer = found(await client.get(f"/packages/{package}/similar"))
        assert len(answer) == 10
        assert answer == sorted(answer, key=lambda hit: (hit[1], hit[0]))
        hits += len({key for key, _ in truth} & {key for key, _ in answer})
        kept = dict(truth)
        assert all(distance == kept.get(key, distance) for key, distance in answer)
    assert hits >= 0.95 * 200


@pytest.mark.parametrize(
    ("filters", "condition"),
    [
        ({"section": "games"}, "section = 'games'"),
        ({"prefix": "python3-p"}, "name LIKE 'python3-p%%'"),
        ({"prefix": "python3_p"}, "name LIKE 'python3\\_p%%'"),
        ({"tag": "plugin"}, "EXISTS (SELECT FROM tags WHERE package_id = id AND label = 'plugin')"),
        (
            {"section": "doc", "prefix": "lib", "tag": "dev", "k": 100},
            "section = 'doc' AND name LIKE 'lib%%' "
            "AND 'dev' IN (SELECT label FROM tags WHERE package_id = id)",
        ),
        (
            {"section": "net", "max_distance": 0.55},
            "section = 'net' AND embedding <=> %(vector)s::vector <= 0.55",
        ),
        ({"section": "it's 100%"}, "false"),
    ],
    ids=str,
)
async def test_filters_restrict_what_is_searched(
    client: httpx.AsyncClient, ready: str, filters: dict[str, Any], condition: str
) -> None:
    """Fewer rows match than are kept by their codes, so the answers are exactly the nearest."""
    vector = embedding_of(ready, 4959)
    wanted = {"k": 10, **filters}
    answer = found(await client.post("/search", json={"vector": vector, **wanted}))
    assert answer == [
        (key, pytest.approx(distance, abs=1e-6))
        for key, distance in exact(ready, vector, condition, wanted["k"])
    ]
    similar = found(await client.get("/packages/4959/similar", params=wanted))
    others = exact(ready, vector, f"{condition} AND id <> 4959", wanted["k"])
    assert similar == others


async def test_what_is_written_is_found_at_once(client: httpx.AsyncClient) -> None:
    here, there = np.eye(DIMENSION)[[3, 5]].tolist()
    package = {"name": "new", "section": "misc", "description": "d", "tags": ["b", "a"]}

    async def nearest(vector: list[float]) -> str:
        response = await client.post("/search", json={"vector": vector, "k": 1})
        return str(response.json()[0]["name"])

    response = await client.post("/packages", json={**package, "embedding": here})
    assert response.status_code == 201
    path = f"/packages/{response.json()['id']}"
    shown = {**package, "id": response.json()["id"], "tags": ["a", "b"]}
    assert response.json() == (await client.get(path)).json() == shown
    assert await nearest(here) == "new"

    changed = {**package, "name": "moved", "tags": ["b", "c"], "embedding": there}
    response = await client.put(path, json=changed)
    assert response.json() == {**shown, "name": "moved", "tags": ["b", "c"]}
    assert await nearest(there) == "moved"
    assert await nearest(here) != "moved"

    assert (await client.delete(path)).status_code == 204
    assert (await client.get(path)).status_code == 404
    assert await nearest(there) != "moved"


VECTOR = [1.0] * DIMENSION
NEW = {"name": "n", "section": "s", "description": "d", "embedding": VECTOR}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("GET", "/packages/0", None, 404, "there is no package 0"),
        ("GET", "/packages/0/similar", None, 404, "there is no package 0"),
        ("GET", f"/packages/{2**64}", None, 422, "out of range"),
        ("GET", "/packages/nginx/similar", None, 422, "valid integer"),
        ("GET", "/packages/1/similar?k=0", None, 422, "greater than or equal to 1"),
        ("GET", "/packages/1/similar?k=101", None, 422, "less than or equal to 100"),
        ("GET", "/packages/1/similar?max_distance=nan", None, 422, "finite"),
        ("GET", "/packages/1/similar?section=%00", None, 422, "match pattern"),
        ("PUT", "/packages/0", NEW, 404, "there is no package 0"),
        ("DELETE", "/packages/0", None, 404, "there is no package 0"),
        ("POST", "/packages", {**NEW, "name": "nginx"}, 409, "already exists"),
        ("POST", "/packages", {**NEW, "name": "a\0b"}, 422, "match pattern"),
        ("POST", "/packages", {**NEW, "name": "\ud800"}, 422, "unicode"),
        ("POST", "/search", {}, 422, "required"),
        ("POST", "/search", {"vector": VECTOR[1:]}, 422, "at least 384"),
        ("POST", "/search", {"vector": [*VECTOR, 1]}, 422, "at most 384"),
        ("POST", "/search", {"vector": ["x", *VECTOR[1:]]}, 422, "valid number"),
        ("POST", "/search", {"vector": [float("nan"), *VECTOR[1:]]}, 422, "finite"),
        ("POST", "/search", {"vector": [float("inf"), *VECTOR[1:]]}, 422, "finite"),
        ("POST", "/search", {"vector": [0] * DIMENSION}, 422, "no direction"),
        ("POST", "/search", {"vector": [1e308] * DIMENSION}, 422, "no direction"),
    ],
)
async def test_bad_input_is_refused_with_a_reason(
    client: httpx.AsyncClient, method: str, path: str, body: Any, status: int, message: str
) -> None:
    # Not json=, which refuses NaN itself.
    content = None if body is None else json.dumps(body)
    headers = {"Content-Type": "application/json"}
    response = await client.request(method, path, content=content, headers=headers)
    assert response.status_code == status
    assert message in response.text
    assert len(response.text) < 400


async def test_vectors_of_any_length_are_searched_for(client: httpx.AsyncClient) -> None:
    answers = [
        found(await client.post("/search", json={"vector": [size, *[0] * (DIMENSION - 1)]}))
        for size in (1, 1e-300, 1e300)
    ]
    assert answers[0] == answers[1] == answers[2]


async def test_health_says_what_is_wrong_with_the_index(
    client: httpx.AsyncClient, ready: str
) -> None:
    assert (await client.get("/health")).json() == {"status": "ok", "findings": []}
    with psycopg.connect(ready, autocommit=True) as connection:
        connection.execute("ALTER TABLE packages RENAME TO renamed")
        try:
            response = await client.get("/health")
        finally:
            connection.execute("ALTER TABLE renamed RENAME TO packages")
    assert response.status_code == 503
    assert response.json()["status"] == "broken"
    (finding,) = response.json()["findings"]
    assert finding["check"] == "table"
    assert "has another name" in finding["detail"]
    assert "pg-hashindex index repair packages_idx" in finding["advice"]


async def test_without_a_database_there_is_a_reason(
    asking: Callable[[str], AbstractAsyncContextManager[httpx.AsyncClient]],
) -> None:
    async with asking("postgresql://user:secret@127.0.0.1:1/packages") as client:
        response = await client.get("/packages/1")
    assert response.status_code == 503
    assert "connection failed" in response.json()["detail"]
    assert "secret" not in response.text


async def test_without_tables_it_is_not_the_callers_fault(
    create: Callable[[str, str], str],
    asking: Callable[[str], AbstractAsyncContextManager[httpx.AsyncClient]],
) -> None:
    async with asking(create("bare", "template1")) as client:
        response = await client.get("/packages/1")
    assert response.status_code == 503
    assert 'relation "packages" does not exist' in response.json()["detail"]


def test_without_settings_it_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(SystemExit, match=f"set {VARIABLE}"):
        create_app()
