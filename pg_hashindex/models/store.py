"""Models in the database: the only reader and writer of ``hashindex.model`` and its parts.

A reference is ``name`` (the latest version) or ``name:version``. If a network follows the layers,
the stored layers end in one of kind ``network``, which SQL refuses to evaluate. Column ``network``
describes the network, and ``hashindex.model_part`` holds its arrays. The parts of a model without a
network are its learned codes.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, LiteralString

import numpy as np
from pgvector import Vector
from psycopg import sql
from psycopg.types.json import Jsonb

from ..db.connection import Connection
from ..db.owners import prepare_schema
from ..db.server_errors import translated_errors
from ..db.sql_files import query
from ..db.statements import check_text, execute, one_row, read_as
from ..errors import DatabaseStateError, InUseError, InvalidInputError
from .layers import Layer
from .model import Metric, Model
from .network import Network, NetworkKind, read_known_rows
from .profiles import Profile

__all__ = [
    "EvaluatedIn",
    "StoredModel",
    "check_may_save",
    "describe",
    "drop",
    "list_models",
    "load",
    "save",
    "script",
]

#: The language that evaluates a model: SQL unless it has a network.
EvaluatedIn = Literal["sql", "python"]

_NETWORK = "network"
# Far below 1 GB, PostgreSQL's limit of a value; a client holds a part twice.
_PART_BYTES = 8_000_000

_MODEL = query("models.model")
_NAME = "the name of a model"
_INSERT = query("models.insert")
_INSERT_PART: LiteralString = (
    "INSERT INTO hashindex.model_part (model_id, part, data) VALUES ($1, $2, $3)"
)
_LAYERS = query("models.layers")
_SCRIPT = query("models.script")
_PARTS: LiteralString = (
    "SELECT part FROM hashindex.readable_model_part WHERE model_id = $1 ORDER BY part"
)
_PART: LiteralString = (
    "SELECT data FROM hashindex.readable_model_part WHERE model_id = $1 AND part = $2"
)


@dataclass(frozen=True)
class StoredModel:
    """A stored model without its layers.

    ``network`` is the kind of its network, or None; Python evaluates models that have one.
    ``size_bytes`` counts layers, network and learned codes. ``profile_rows`` is the number of rows
    of its profile, or None. ``cuts`` are the values that its bits compare projections with.
    """

    name: str
    version: int
    method: str
    dimension: int
    n_bits: int
    metric: Metric
    parameters: dict[str, Any]
    training: dict[str, Any]
    checksum: str
    layer_kinds: list[str]
    size_bytes: int
    created_at: datetime
    indexes: list[str]
    weighted: bool
    network: NetworkKind | None
    evaluated_in: EvaluatedIn
    profile_rows: int | None
    cuts: list[float]


def save(connection: Connection, model: Model) -> Model:
    """Store a model as the next version of its name.

    Returns
    -------
    Model
        The same model with its version.

    Raises
    ------
    MissingSchemaError, MissingRightsError
        If the schema is not installed, or the role may not write to it.
    InvalidInputError
        If it is not a model, but the hasher of one.
    """
    if not isinstance(model, Model):
        raise InvalidInputError(
            f"a Model is stored, got {type(model).__name__}; a hasher's is hasher.to_model(NAME)"
        )
    layers: list[tuple[Any, ...]] = [
        (
            layer.kind,
            None if layer.weights is None else [Vector(row) for row in layer.weights],
            None if layer.bias is None else Vector(layer.bias),
            layer.scale,
            layer.nearest,
        )
        for layer in model.layers
    ]
    if model.network is not None:
        layers.append((_NETWORK, None, None, None, None))
    values = [
        model.name,
        model.method,
        model.dimension,
        model.n_bits,
        model.metric,
        Jsonb(dict(model.parameters)),
        Jsonb(dict(model.training)),
        model.checksum,
        None if model.bit_weights is None else Vector(model.bit_weights),
        None if model.network is None else Jsonb(model.network.spec()),
        None if model.profile is None else Jsonb(model.profile.as_dict()),
        list(model.cuts),
    ]
    rows = []
    for layer in layers:
        numbers = range(len(values) + 1, len(values) + 1 + len(layer))
        rows.append(f"ROW({', '.join(f'${n}' for n in numbers)})::hashindex.layer")
        values += layer
    with translated_errors():
        prepare_schema(connection)
        with connection.transaction():
            # Two concurrent saves of one name must not get the same version.
            execute(connection, "LOCK TABLE hashindex.model IN SHARE ROW EXCLUSIVE MODE")
            insert = _INSERT.format(layers=", ".join(rows)).encode()
            number, version = one_row(connection, insert, values)
            kept = model.network or model.learned
            if kept is not None:
                for place, part in enumerate(kept.parts(_PART_BYTES)):
                    execute(connection, _INSERT_PART, [number, place, part])
    return replace(model, version=version)


def script(connection: Connection, reference: str) -> str:
    """Return the SQL statement that stores a model as the next version of its name.

    For a database that Python cannot reach; `load` checks there what it stored.

    Raises
    ------
    UnknownModelError
        If there is no such model.
    InvalidInputError
        If SQL could not evaluate the model, or it has learned codes.
    """
    check_text(_NAME, reference)
    with translated_errors():
        prepare_schema(connection)
        row = execute(connection, _SCRIPT, [reference]).fetchone()
    if row is None:
        raise InvalidInputError(
            f"model {reference!r} has a network or learned codes, which only Python reads: export "
            "it to a file"
        )
    text: str = row[0]
    return text


def check_may_save(connection: Connection) -> None:
    """Refuse a role that may not save models; called before training."""
    with translated_errors():
        prepare_schema(connection)
        execute(connection, "SELECT hashindex._check_administrator()")


def load(connection: Connection, reference: str) -> Model:
    """Read a model.

    Parameters
    ----------
    reference
        ``name`` or ``name:version``.

    Raises
    ------
    UnknownModelError
        If there is no such model.
    DatabaseStateError
        If layers, network or learned codes do not match the saved checksum.
    """
    check_text(_NAME, reference)
    with translated_errors():
        prepare_schema(connection)
        # Binary, since Django has its connections read jsonb as text.
        row = one_row(connection, _MODEL, [reference], binary=True)
        layers = execute(connection, _LAYERS, row[:1], binary=True).fetchall()
        data = bytearray()
        # One by one, since they may have hundreds of megabytes. Models never change, so parts may
        # be read in another snapshot than the rest.
        for (part,) in execute(connection, _PARTS, row[:1]).fetchall():
            for (values,) in execute(connection, _PART, [row[0], part], binary=True).fetchall():
                data += values
    try:
        return _assembled(reference, row, layers, data)
    except DatabaseStateError:
        with translated_errors():
            # It may have been dropped since its row was read, which is another error.
            one_row(connection, _MODEL, [reference])
        raise


def _assembled(
    reference: str,
    row: tuple[Any, ...],
    layers: list[tuple[Any, ...]],
    data: bytearray,
) -> Model:
    remedy = "import it again from a file, or train it again"
    try:
        network = learned = None
        if row[10] is not None:
            network = Network.from_parts(row[10], data)
            # Models in Python have no such layer. If it is missing, the checksum fails.
            layers = [layer for layer in layers if layer[0] != _NETWORK]
        elif data:
            learned = read_known_rows(data, row[12])
        model = Model(
            name=row[1],
            method=row[2],
            dimension=row[3],
            layers=[_layer(*layer) for layer in layers],
            metric=row[4],
            parameters=row[5],
            training=row[6],
            version=row[7],
            bit_weights=None if row[9] is None else row[9].to_numpy(),
            network=network,
            profile=None if row[11] is None else Profile.from_dict(row[11]),
            cuts=tuple(row[13]),
            learned=learned,
        )
    except ValueError as error:
        raise DatabaseStateError(f"model {reference!r} is damaged: {error}; {remedy}") from error
    if model.checksum != row[8]:
        raise DatabaseStateError(
            f"model {reference!r} is damaged: its checksum is {model.checksum}, saved was "
            f"{row[8]}; {remedy}"
        )
    return model


def _layer(
    kind: Any,
    weights: list[Vector] | None,
    bias: Vector | None,
    scale: float | None,
    nearest: int | None,
) -> Layer:
    return Layer(
        kind,
        None if weights is None else np.stack([row.to_numpy() for row in weights]),
        None if bias is None else bias.to_numpy(),
        scale,
        nearest,
    )


def list_models(connection: Connection) -> list[StoredModel]:
    """Return every version of every model, by name and version."""
    return _describe(connection, "ORDER BY m.name, m.version", [])


def describe(connection: Connection, reference: str) -> StoredModel:
    """Return one model without its layers.

    Raises
    ------
    UnknownModelError
        If there is no such model.
    """
    check_text(_NAME, reference)
    return _describe(connection, "WHERE m.id = (hashindex.find_model($1)).id", [reference])[0]


def _describe(connection: Connection, which: str, values: list[str]) -> list[StoredModel]:
    with translated_errors():
        prepare_schema(connection)
        return read_as(
            StoredModel,
            connection,
            sql.SQL(query("models.described")).format(which=sql.SQL(which)),
            values,
        )


def drop(connection: Connection, reference: str) -> list[StoredModel]:
    """Drop one version (``name:version``), or every version (``name``) of a model.

    Returns
    -------
    list of StoredModel
        The models that were dropped.

    Raises
    ------
    UnknownModelError
        If there is no such model.
    InUseError
        If an index uses one of them; nothing is dropped then.
    """
    with translated_errors():
        prepare_schema(connection)
        with connection.transaction():
            latest = describe(connection, reference)
            models = (
                [latest]
                if ":" in reference
                else _describe(connection, "WHERE m.name = $1 ORDER BY m.version", [latest.name])
            )
            users = sorted({index for model in models for index in model.indexes})
            if users:
                raise InUseError(
                    f"model {reference!r} is used by index {', '.join(users)}; give that another "
                    "model (pg-hashindex index swap, then index prune), or drop it"
                )
            execute(
                connection,
                "DELETE FROM hashindex.model WHERE name = $1 AND version = ANY ($2)",
                [latest.name, [model.version for model in models]],
            )
    return models
