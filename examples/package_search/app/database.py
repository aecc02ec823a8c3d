"""A session for each request."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Request
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from pg_hashindex.db.server_errors import translated_errors

__all__ = ["Session", "lifespan"]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Keep a pool of connections for as long as the app runs."""
    engine = create_async_engine(app.state.url)
    app.state.sessions = async_sessionmaker(engine)
    try:
        yield
    finally:
        await engine.dispose()


async def _session(request: Request) -> AsyncIterator[AsyncSession]:
    # An error of PostgreSQL becomes one of pg_hashindex, whose message can be shown.
    with translated_errors():
        async with request.app.state.sessions() as session:
            yield session


Session = Annotated[AsyncSession, Depends(_session)]
