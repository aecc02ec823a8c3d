"""The operations of alembic's migrations, as they are written and reversed."""

from typing import Any

from alembic.operations import BatchOperations, MigrateOperation, Operations
from alembic.operations.ops import OpContainer

from ...errors import InvalidInputError
from ..sqlalchemy.specification import IndexSpec

__all__ = [
    "ChangeHashIndexOps",
    "ConfigureHashIndexOp",
    "CreateHashIndexOp",
    "DropHashIndexOp",
    "InstallHashIndexOp",
    "SwapHashModelOp",
    "UninstallHashIndexOp",
]


def _flushed(operations: BatchOperations) -> Any:
    """Do what a batch has gathered, so that its order is kept; return it."""
    batch: Any = operations.impl
    batch.flush()
    batch.batch.clear()
    return batch


@Operations.register_operation("create_hash_index")
@BatchOperations.register_operation("create_hash_index", "batch_create_hash_index")
class CreateHashIndexOp(MigrateOperation):
    """Make an index, and encode the rows of its table."""

    def __init__(self, spec: IndexSpec, *, encode: bool = True) -> None:
        spec.check()
        self.spec, self.encode = spec, encode

    @classmethod
    def create_hash_index(
        cls,
        operations: Operations,
        name: str,
        table: str,
        column: str,
        *,
        model: str,
        encode: bool = True,
        **options: Any,
    ) -> None:
        """Make an index; see `pg_hashindex.contrib.alembic.create_hash_index`."""
        operations.invoke(cls(IndexSpec(name, table, column, model, **options), encode=encode))

    @classmethod
    def batch_create_hash_index(
        cls, operations: BatchOperations, name: str, column: str, *, model: str, **options: Any
    ) -> None:
        """Make an index of the table of a batch, after what was asked for before."""
        batch = _flushed(operations)
        options.setdefault("schema", batch.schema)
        table = batch.table_name
        cls.create_hash_index(batch.operations, name, table, column, model=model, **options)

    def reverse(self) -> "DropHashIndexOp":
        """Return what drops it; where it may not have been made, if it is there."""
        return DropHashIndexOp(self.spec.name, self.spec, if_exists=self.spec.defer)

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """Return what ``alembic check`` shows."""
        return ("add_hash_index", self.spec)


@Operations.register_operation("drop_hash_index")
@BatchOperations.register_operation("drop_hash_index", "batch_drop_hash_index")
class DropHashIndexOp(MigrateOperation):
    """Drop an index."""

    def __init__(
        self, name: str, spec: IndexSpec | None = None, *, if_exists: bool = False
    ) -> None:
        self.name, self.spec, self.if_exists = name, spec, if_exists

    @classmethod
    def drop_hash_index(
        cls, operations: Operations, name: str, *, if_exists: bool = False, **was: Any
    ) -> None:
        """Drop an index; see `pg_hashindex.contrib.alembic.drop_hash_index`."""
        operations.invoke(cls(name, IndexSpec(name, **was) if was else None, if_exists=if_exists))

    @classmethod
    def batch_drop_hash_index(cls, operations: BatchOperations, name: str, **options: Any) -> None:
        """Drop an index, after what was asked for before in a batch."""
        cls.drop_hash_index(_flushed(operations).operations, name, **options)

    def reverse(self) -> CreateHashIndexOp:
        """Return what makes it again."""
        if self.spec is None:
            raise InvalidInputError(
                f"operation cannot be reversed: drop_hash_index({self.name!r}) does not say what "
                "the index was; give it table, column and model too"
            )
        return CreateHashIndexOp(self.spec)

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """Return what ``alembic check`` shows."""
        return ("remove_hash_index", self.spec or self.name)


@Operations.register_operation("swap_hash_model")
class SwapHashModelOp(MigrateOperation):
    """Give an index another model."""

    def __init__(self, name: str, model: str, existing_model: str | None = None) -> None:
        self.name, self.model, self.existing_model = name, model, existing_model

    @classmethod
    def swap_hash_model(
        cls, operations: Operations, name: str, model: str, *, existing_model: str | None = None
    ) -> None:
        """Give an index another model; see `pg_hashindex.contrib.alembic.swap_hash_model`."""
        operations.invoke(cls(name, model, existing_model))

    def reverse(self) -> "SwapHashModelOp":
        """Return what gives it the model before."""
        if self.existing_model is None:
            raise InvalidInputError(
                f"operation cannot be reversed: swap_hash_model({self.name!r}, {self.model!r}) "
                "does not say which model the index had; give it existing_model too"
            )
        return SwapHashModelOp(self.name, self.existing_model, self.model)

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """Return what ``alembic check`` shows."""
        return ("swap_hash_model", self.name, self.existing_model, self.model)


@Operations.register_operation("configure_hash_index")
class ConfigureHashIndexOp(MigrateOperation):
    """Change how an index is searched by default."""

    def __init__(
        self, name: str, settings: dict[str, Any], existing: dict[str, Any] | None = None
    ) -> None:
        unknown = {*settings, *(existing or {})} - {"access", "ranking", "candidates", "probes"}
        if unknown or not settings:
            raise InvalidInputError(
                f"index {name!r} is configured by access, ranking, candidates and probes, got "
                f"{', '.join(sorted(unknown)) or 'none of them'}"
            )
        self.name, self.settings, self.existing = name, settings, existing or {}

    @classmethod
    def configure_hash_index(cls, operations: Operations, name: str, **settings: Any) -> None:
        """Configure an index; see `pg_hashindex.contrib.alembic.configure_hash_index`."""
        given = {key: value for key, value in settings.items() if value is not None}
        prefix = "existing_"
        operations.invoke(
            cls(
                name,
                {key: value for key, value in given.items() if not key.startswith(prefix)},
                {key[len(prefix) :]: value for key, value in given.items() if key[:9] == prefix},
            )
        )

    def reverse(self) -> "ConfigureHashIndexOp":
        """Return what configures it as before."""
        if not self.existing:
            raise InvalidInputError(
                f"operation cannot be reversed: configure_hash_index({self.name!r}, ...) does not "
                "say how the index was configured; give it existing_access and the like too"
            )
        return ConfigureHashIndexOp(self.name, self.existing, self.settings)

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """Return what ``alembic check`` shows."""
        return ("configure_hash_index", self.name, self.existing, self.settings)


class ChangeHashIndexOps(OpContainer):
    """Another model and other settings, in this order there and back: a model must serve them."""

    def reverse(self) -> "ChangeHashIndexOps":
        """Return what gives back the model, and then the settings."""
        return ChangeHashIndexOps([operation.reverse() for operation in self.ops])


@Operations.register_operation("install_hashindex")
class InstallHashIndexOp(MigrateOperation):
    """Install schema hashindex, or bring it up to this release."""

    @classmethod
    def install_hashindex(cls, operations: Operations) -> None:
        """Install schema hashindex; see `pg_hashindex.contrib.alembic.install_hashindex`."""
        operations.invoke(cls())

    def reverse(self) -> "UninstallHashIndexOp":
        """Return what removes it."""
        return UninstallHashIndexOp()


@Operations.register_operation("uninstall_hashindex")
class UninstallHashIndexOp(MigrateOperation):
    """Remove schema hashindex with its models."""

    @classmethod
    def uninstall_hashindex(cls, operations: Operations) -> None:
        """Remove schema hashindex; see `pg_hashindex.contrib.alembic.uninstall_hashindex`."""
        operations.invoke(cls())

    def reverse(self) -> InstallHashIndexOp:
        """Return what installs it."""
        return InstallHashIndexOp()
