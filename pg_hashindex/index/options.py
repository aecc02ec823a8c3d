"""The options of an index, each declared once: as a field of `IndexOptions`.

`HashIndex.create`, ``configure`` and ``swap``, the command line, and the declarations and
migrations of SQLAlchemy, alembic and Django take their options, and say what they may be, from
these fields. In the database ``sql/152_build_sets.sql`` checks them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import NoneType
from typing import Annotated, Any, Literal, TypedDict, get_args, get_origin, get_type_hints

from ..db.keys import KeyColumns
from ..errors import InvalidInputError
from ..models.model import Metric
from .catalog import Access
from .search import as_count

#: How an option of an existing index is changed.
Change = Literal["configure", "swap"]


@dataclass(frozen=True)
class Option:
    """Metadata of an option beside its name and type.

    Parameters
    ----------
    help
        A line for the command line.
    usual
        What creation chooses if the option is left out; empty if nothing.
    flag
        Its name on the command line, by default its own.
    columns
        Whether it names columns of the table.
    changed_by
        What changes it; if nothing does, another index has to be made.
    kind
        Its type, as annotated.
    """

    help: str
    usual: str = ""
    flag: str = ""
    columns: bool = False
    changed_by: tuple[Change, ...] = ()
    kind: Any = None

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed values, if they are few."""
        return tuple(c for k in self.kinds if get_origin(k) is Literal for c in get_args(k))

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The types of its values."""
        return tuple(kind for kind in get_args(self.kind) if kind is not NoneType)

    @property
    def several(self) -> bool:
        """Whether its value is a list of names."""
        return Sequence[str] in self.kinds


class IndexOptions(TypedDict, total=False):
    """The options of an index; None is the same as to leave one out.

    A dictionary rather than a dataclass, so that type checkers know the keywords of functions that
    take ``**options: Unpack[IndexOptions]``.

    Parameters
    ----------
    key_columns : str or sequence of str, optional
        A column, or several, that are unique together and NOT NULL; the primary key by default.
    metric : {"l2", "cosine", "ip"}, optional
        The exact distance of answers; by default that of a vector index of the column, or the
        model's, or cosine.
    access : {"hnsw", "ivfflat", "lists", "scan"}, optional
        What keeps the set: pgvector's HNSW, the default, or IVFFlat; or tables of codes, in lists
        around landmarks, or ("scan") without lists.
    store : bool, optional
        Keep the codes in a generated column, which the index makes and drops.
    code_column : str, optional
        A column ``bit(n)`` of yours that holds the codes of the model.
    candidates : int, optional
        Rows that are compared exactly, in searches for up to ten rows; searches for more compare
        more in proportion. By default as many as find .95 of the nearest rows on the built index.
    effort : int, optional
        ``ef_search`` of HNSW, by default the candidates; ``probes`` of IVFFlat; lists that are
        read. As measured by default.
    tenant : str, optional
        A column of tenants, of which most searches want the rows of one.
    reveal_anchors : bool, optional
        All roles may read the rows that the model keeps as anchors.
    """

    key_columns: Annotated[
        KeyColumns,
        Option(
            "Key columns, unique together and NOT NULL.", "primary key", flag="id", columns=True
        ),
    ]
    metric: Annotated[
        Metric | None,
        Option("Exact distance.", "that of a vector index of the column, else the model's"),
    ]
    access: Annotated[
        Access | None,
        Option(
            "What keeps the index: pgvector, or tables of pg_hashindex, by lists or without.",
            "hnsw",
            changed_by=("swap",),
        ),
    ]
    store: Annotated[
        bool | None,
        Option("Keep the codes in a column that the index makes.", changed_by=("swap",)),
    ]
    code_column: Annotated[
        str | None,
        Option("Column of yours that holds the codes.", columns=True, changed_by=("swap",)),
    ]
    candidates: Annotated[
        int | None,
        Option("Rows that are compared exactly.", "as measured", changed_by=("configure",)),
    ]
    effort: Annotated[
        int | None,
        Option(
            "ef_search, probes, or lists that are read.", "as measured", changed_by=("configure",)
        ),
    ]
    tenant: Annotated[
        str | None, Option("Column of tenants, whose rows are searched alone.", columns=True)
    ]
    reveal_anchors: Annotated[
        bool | None,
        Option("All roles may read the rows that the model keeps.", changed_by=("swap",)),
    ]


def declared_options(options: type) -> dict[str, Option]:
    """Read the options from the annotated fields of a class."""
    hints = get_type_hints(options, include_extras=True)
    found = {name: hint.__metadata__[0] for name, hint in hints.items()}
    return {
        name: replace(o, kind=hints[name].__origin__, flag=o.flag or name.replace("_", "-"))
        for name, o in found.items()
    }


#: Every option by its name.
OPTIONS = declared_options(IndexOptions)


def options_changed_by(change: Change) -> list[str]:
    """Return the names of the options that are changed so."""
    return [name for name, option in OPTIONS.items() if change in option.changed_by]


def checked_options(
    index: str, options: Mapping[str, Any], *, to: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return the options that are not None, columns as lists; refuse unknown ones and values.

    ``to`` are the names of those that may be given, all by default.
    """
    known = [*OPTIONS] if to is None else [*to]
    unknown = [name for name in options if name not in known]
    if unknown:
        verb = "made with" if to is None else "changed by"
        raise InvalidInputError(
            f"index {index!r} is {verb} {', '.join(known)}; got {', '.join(unknown)}"
        )
    return {
        name: _checked(name, option, options[name], index)
        for name, option in OPTIONS.items()
        if options.get(name) is not None
    }


def _checked(name: str, option: Option, value: Any, index: str) -> Any:
    if option.choices:
        if value not in option.choices:
            raise InvalidInputError(
                f"{name} {value!r} of index {index!r} is unknown; use one of: "
                f"{', '.join(option.choices)}"
            )
        return value
    if bool in option.kinds:
        if not isinstance(value, bool):
            raise InvalidInputError(f"{name} of index {index!r} is true or false, got {value!r}")
        return value
    if int in option.kinds:
        return as_count(name, value)
    if isinstance(value, str) and str in option.kinds:
        return [value] if option.several else value
    if (
        option.several
        and isinstance(value, Sequence)
        and not isinstance(value, str | bytes)
        and all(isinstance(one, str) for one in value)
    ):
        return list(value)
    text = ["the name of a column" if option.columns else "text"] * (str in option.kinds)
    wanted = " or ".join(text + ["a list of names"] * option.several)
    raise InvalidInputError(f"{name} of index {index!r} is {wanted}, got {value!r}")


def same_option(value: Any, other: Any) -> bool:
    """Return whether two values are the same: columns in any order, and none like no value."""
    if isinstance(value, list) or isinstance(other, list):
        return sorted(value or ()) == sorted(other or ())
    return bool(value == other)
