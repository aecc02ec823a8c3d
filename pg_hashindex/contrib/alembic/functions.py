"""The operations as functions with types, for revisions of alembic."""

from typing import TypedDict, Unpack

from alembic import op

from ...index.catalog import Access, Ranking
from ..sqlalchemy.specification import PlacedIndexOptions
from .operations import (
    ConfigureHashIndexOp,
    CreateHashIndexOp,
    DropHashIndexOp,
    InstallHashIndexOp,
    SwapHashModelOp,
    UninstallHashIndexOp,
)

__all__ = [
    "configure_hash_index",
    "create_hash_index",
    "drop_hash_index",
    "install_hashindex",
    "swap_hash_model",
    "uninstall_hashindex",
]


class _Settings(TypedDict, total=False):
    access: Access | None
    ranking: Ranking | None
    candidates: int | None
    probes: int | None
    existing_access: Access | None
    existing_ranking: Ranking | None
    existing_candidates: int | None
    existing_probes: int | None


def create_hash_index(
    name: str,
    table: str,
    column: str,
    *,
    model: str,
    encode: bool = True,
    **options: Unpack[PlacedIndexOptions],
) -> None:
    """Make an index, and encode the rows of its table, in the migration's transaction.

    Writers wait until that ends, so for a large table leave the encoding to ``pg-hashindex index
    encode``. That also encodes by models that are evaluated in Python, and builds access paths;
    until then searches scan all codes.

    Parameters
    ----------
    name : str
        1 to 40 bytes.
    table, column : str
        By their bare names.
    model : str
        ``name`` (its latest version) or ``name:version``.
    encode : bool
        Whether to encode the rows that are there.
    schema : str, optional
        The schema of the table; found by the search_path by default.
    key, metric, layout, access, ranking, candidates, probes, filter_columns : optional
        As `pg_hashindex.contrib.sqlalchemy.HashIndex`.
    defer : bool
        Whether to do nothing, with a warning, if the model does not exist or the index exists
        already.

    Raises
    ------
    MissingSchemaError, UnknownModelError, InvalidInputError, DuplicateNameError
        The whole migration fails then.
    """
    CreateHashIndexOp.create_hash_index(
        op, name, table, column, model=model, encode=encode, **options
    )


def drop_hash_index(
    name: str,
    *,
    if_exists: bool = False,
    table: str | None = None,
    column: str | None = None,
    model: str | None = None,
    **options: Unpack[PlacedIndexOptions],
) -> None:
    """Drop an index with its codes; table and model stay.

    Parameters
    ----------
    name : str
    if_exists : bool
        Whether to do nothing if there is no such index.
    table, column, model, schema, key, metric, layout, access, ranking, candidates, probes,
    filter_columns, defer : optional
        The settings of the index, so that the operation can be reversed; not needed to drop it.

    Raises
    ------
    UnknownIndexError
        If there is no such index, without if_exists.
    """
    was = {"table": table, "column": column, "model": model}
    given = {key: value for key, value in was.items() if value is not None}
    DropHashIndexOp.drop_hash_index(op, name, if_exists=if_exists, **given, **options)


def swap_hash_model(name: str, model: str, *, existing_model: str | None = None) -> None:
    """Give an index another model, whose codes are made in the migration's transaction.

    Writers wait until the migration ends. For a large table run ``pg-hashindex index swap`` before
    it: if the index has the model already, nothing is done. Recall is not compared. The old codes
    are kept up to date, so that a downgrade can return to them, until ``pg-hashindex index prune``
    or the next swap drops them.

    Parameters
    ----------
    name : str
    model : str
        ``name`` (its latest version) or ``name:version``, of the same dimension; one that SQL
        evaluates.
    existing_model : str, optional
        The model before, so that the operation can be reversed.

    Raises
    ------
    UnknownIndexError, UnknownModelError, InvalidInputError
        If the model cannot serve the index, or is evaluated in Python.
    InUseError
        If another swap of the index is under way.
    """
    SwapHashModelOp.swap_hash_model(op, name, model, existing_model=existing_model)


def configure_hash_index(
    name: str,
    **settings: Unpack[_Settings],
) -> None:
    """Change the defaults of searches; None leaves a setting as it is.

    The migration does not build another access path: ``pg-hashindex index encode`` does.
    ``pg-hashindex index repair`` drops landmarks that are no longer used.

    Parameters
    ----------
    name : str
    access, ranking, candidates, probes : str or int, optional
        As `pg_hashindex.HashIndex.configure`.
    existing_access, existing_ranking, existing_candidates, existing_probes : str or int
        The settings before, so that the operation can be reversed.

    Raises
    ------
    UnknownIndexError, InvalidInputError
        If a value is out of range, or the index or its model cannot serve it.
    """
    ConfigureHashIndexOp.configure_hash_index(op, name, **settings)


def install_hashindex() -> None:
    """Install schema hashindex, or bring it up to this release; do nothing if it is up to date.

    A script (``--sql``) is only for a database that does not have the schema.
    """
    op.invoke(InstallHashIndexOp())


def uninstall_hashindex(*, drop_models: bool = False) -> None:
    """Remove schema hashindex, with its models only if ``drop_models`` says so.

    Raises
    ------
    InUseError
        If there are indexes, or models that may not be dropped.
    InvalidInputError
        In a script (``--sql``).
    """
    op.invoke(UninstallHashIndexOp(drop_models=drop_models))
