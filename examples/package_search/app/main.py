"""The application: ``uvicorn --factory app.main:create_app``."""

import psycopg
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from pg_hashindex.errors import DuplicateNameError, HashIndexError, InvalidInputError

from . import health, packages, search
from .database import lifespan
from .settings import engine_url

__all__ = ["create_app"]


def create_app() -> FastAPI:
    """Make the application, for the database of its settings."""
    app = FastAPI(title="Package search", lifespan=lifespan)
    # Read settings here, where uvicorn shows an error in them in one line.
    app.state.url = engine_url()
    for module in (health, packages, search):
        app.include_router(module.router)

    @app.exception_handler(HashIndexError)
    async def refuse(request: Request, error: HashIndexError) -> JSONResponse:
        # Other errors come from the setup: no index yet, no tables, no database.
        status = 503
        if isinstance(error, InvalidInputError) and _is_about_values(error.__cause__):
            status = 422
        elif isinstance(error, DuplicateNameError):
            status = 409
        return JSONResponse({"detail": str(error)}, status)

    @app.exception_handler(RequestValidationError)
    async def explain(request: Request, error: RequestValidationError) -> JSONResponse:
        # Without the input: it may be 384 numbers, or NaN, which JSON does not have.
        faults = [{"loc": fault["loc"], "msg": fault["msg"]} for fault in error.errors()]
        return JSONResponse({"detail": faults}, 422)

    return app


def _is_about_values(cause: BaseException | None) -> bool:
    # Without a cause, Python refused a value before it was sent.
    return not isinstance(cause, psycopg.Error) or isinstance(cause, psycopg.DataError)
