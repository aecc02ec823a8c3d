"""A service of FastAPI with asynchronous searches.

As a script it makes an index and asks itself once. `uvicorn fastapi_async:app` serves an index
service_idx that is there.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException
from psycopg import AsyncConnection

from pg_hashindex import AsyncHashIndex, HashIndex, connect, store

URL = os.environ["PG_HASHINDEX_DATABASE_URL"]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    # Requests share it: psycopg sends one statement after the other. A pool has one for each.
    async with await AsyncConnection.connect(URL, autocommit=True) as connection:
        app.state.index = await AsyncHashIndex.open(connection, "service_idx")
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/packages/{name}/similar")
async def similar(name: str, k: int = 5) -> list[dict[str, Any]]:
    index: AsyncHashIndex = app.state.index
    cursor = await index.connection.execute(
        "SELECT embedding FROM packages WHERE name = %s", [name]
    )
    row = await cursor.fetchone()
    if row is None:
        raise HTTPException(404, f"there is no package {name}")
    return [{"id": hit.id, "distance": hit.distance} for hit in await index.search(row[0], k)]


if __name__ == "__main__":
    from fastapi.testclient import TestClient

    with connect(URL) as connection:
        # A model is learned, which has the name of the index.
        index = HashIndex.create(connection, "service_idx", table="packages", column="embedding")
        with TestClient(app) as client:
            print(client.get("/packages/nginx/similar?k=3").json())
            print(client.get("/packages/nothing/similar").status_code)
        index.drop()
        store.drop(connection, index.name)
