"""How an index is: what ``hashindex.health`` finds, and what only Python can tell of its model.

Where Python alone evaluates the model, codes are compared with a fresh encoding here; everything
else is found in the database, by ``sql/170_health_objects.sql`` and the files after it.
"""

import shlex
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Literal, LiteralString, get_args

import numpy as np
from numpy.typing import NDArray
from psycopg import RawCursor, sql
from psycopg.rows import class_row

from ..db.connection import translated_errors
from ..errors import InvalidInputError
from ..index.catalog import HasRow, IndexRow
from ..models.model import Model
from ..models.profiles import stability_index
from ..models.quantization import distances_to_edges, quantize
from ..models.vectors import as_vector

__all__ = ["Finding", "Health", "Status", "check"]

#: From the best to the worst.
Status = Literal["ok", "warning", "broken"]

_SAMPLE_ROWS = 1_000
# A network may take 30 ms for each.
_NETWORK_SAMPLE_ROWS = 200
_BLOCK_ROWS = 1_000
# In root mean squares of a row's projections: as near to the edge of a level, rounding may decide.
_NEAR_EDGE = 1e-3

_FINDINGS: LiteralString = """
    SELECT h.check_name AS check, h.status, h.value, h.detail, h.advice
    FROM hashindex.health(%s, %s) h
"""

_SAMPLED_IDS: LiteralString = """
    SELECT s.ids FROM hashindex._sample_ids($1::regclass, $2, $3, $4) s
"""

_SAMPLED: LiteralString = """
    SELECT b.{column}, {code}::text FROM pg_catalog.unnest($1::text[]) k(id)
    JOIN {table} b ON b.{id} = k.id::{type} WHERE b.{column} IS NOT NULL
"""

_EVERY: LiteralString = (
    "SELECT b.{column}, {code}::text FROM {table} b WHERE b.{column} IS NOT NULL"
)


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Parameters
    ----------
    check : str
        Its name.
    status : {"ok", "warning", "broken"}
        "warning" where answers are right, but could be better or faster, or will not stay right;
        "broken" where they are wrong or missing.
    value : float or None
        The number that the check goes by; None where there was nothing to look at.
    detail : str
        In words.
    advice : str or None
        What to do about it.
    """

    check: str
    status: Status
    value: float | None
    detail: str
    advice: str | None


@dataclass(frozen=True)
class Health:
    """What all checks of an index found.

    Parameters
    ----------
    name : str
        Of the index.
    full : bool
        Whether all rows were looked at, not a sample.
    findings : tuple of Finding
    """

    name: str
    full: bool
    findings: tuple[Finding, ...]

    @property
    def status(self) -> Status:
        """The worst status of all findings."""
        return max((f.status for f in self.findings), key=get_args(Status).index, default="ok")

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "name": self.name,
            "status": self.status,
            "full": self.full,
            "findings": [asdict(finding) for finding in self.findings],
        }


def check(index: HasRow, *, full: bool = False) -> Health:
    """Look at an index, and change nothing; see `HashIndex.check`."""
    index = index.row
    with translated_errors():
        cursor = index.connection.cursor(row_factory=class_row(Finding))
        findings = cursor.execute(_FINDINGS, [index.name, full]).fetchall()
        # Where the table or the codes are gone, there are no such checks.
        if index.encoded_in == "python" and any(f.check == "wrong_codes" for f in findings):
            in_python = _evaluated(index, full)
            findings = [in_python.get(finding.check, finding) for finding in findings]
    return Health(index.name, full, tuple(findings))


def _evaluated(index: IndexRow, full: bool) -> dict[str, Finding]:
    """Compare codes and projections with those that Python computes; findings by their names."""
    model = index.loaded_model
    try:
        return {found.check: found for found in _Evaluated(index, model, full).findings()}
    except InvalidInputError as error:
        # Torch is not installed here, most likely.
        detail = f"the model cannot be evaluated here: {error}"
        return {
            name: Finding(name, "ok", None, detail, None)
            for name in ("wrong_codes", "projection_drift")
        }


class _Evaluated:
    def __init__(self, index: IndexRow, model: Model, full: bool) -> None:
        self.index, self.model = index, model
        self.rows = self.coded = self.wrong = 0
        self.counts: NDArray[np.int64] | None = None
        for vectors, codes in self._blocks(full):
            self._look_at(vectors, codes)

    def _look_at(self, vectors: NDArray[np.float32], codes: list[str | None]) -> None:
        known = np.ones(len(vectors), dtype=bool)
        if self.model.network is not None and self.model.network.kind == "rows":
            # Of other rows the model has no code, and nothing to say.
            known = self.model.network.knows(vectors)
        projections = self.model.project(vectors[known])
        kept = [code for code, is_known in zip(codes, known, strict=True) if is_known]
        has_code = np.array([code is not None for code in kept], dtype=bool)
        stored = np.array([[bit == "1" for bit in code] for code in kept if code is not None])
        fresh = projections[has_code]
        if len(fresh):
            scale = np.sqrt(np.mean(fresh.astype(np.float64) ** 2, axis=1, keepdims=True))
            distances = distances_to_edges(fresh, self.model.levels)
            differs = (stored != quantize(fresh, self.model.levels)) & (
                distances > _NEAR_EDGE * scale
            )
            self.wrong += int(differs.any(axis=1).sum())
        self.coded += len(fresh)
        self.rows += len(projections)
        if self.model.profile is not None and len(projections):
            counts = self.model.profile.counted(projections)
            self.counts = counts if self.counts is None else self.counts + counts

    def findings(self) -> list[Finding]:
        return [self._wrong_codes(), self._drift()]

    def _wrong_codes(self) -> Finding:
        if not self.coded:
            return Finding("wrong_codes", "ok", None, "there are no codes to look at", None)
        share = self.wrong / self.coded
        if not self.wrong:
            detail = f"{self.coded} codes are what the model gives their rows"
            return Finding("wrong_codes", "ok", share, detail, None)
        return Finding(
            "wrong_codes",
            "broken",
            share,
            f"{self.wrong} of {self.coded} codes are not what the model gives their rows",
            "find out what wrote past the triggers; pg-hashindex index repair "
            f"{shlex.quote(self.index.name)} --full makes wrong codes anew",
        )

    def _drift(self) -> Finding:
        name = "projection_drift"
        if self.model.profile is None:
            detail = "how projections were spread was not stored at training"
            return Finding(name, "ok", None, detail, None)
        if self.counts is None:
            return Finding(name, "ok", None, "there are no rows to look at", None)
        index, noise = stability_index(self.model.profile.counts, self.counts)
        mean, worst = max(0.0, float(index.mean())), int(index.argmax())
        drifts = mean > 0.1 + 13 * noise or index[worst] > 0.25 + 34 * noise
        return Finding(
            name,
            "warning" if drifts else "ok",
            mean,
            f"population stability index of projections, mean of the bits {mean:.3f}, bit {worst} "
            f"the most with {max(0.0, index[worst]):.3f}, by {self.rows} rows",
            "rows are no longer like those of the training: train a model on them, and swap it: "
            f"pg-hashindex index swap {shlex.quote(self.index.name)} --model MODEL"
            if drifts
            else None,
        )

    def _blocks(self, full: bool) -> Iterator[tuple[NDArray[np.float32], list[str | None]]]:
        rows: Iterator[tuple[Any, str | None]]
        # Raw: to psycopg's other cursors a % in a name is the start of a placeholder.
        cursor = RawCursor(self.index.connection)
        if full:
            rows = cursor.stream(self._query(_EVERY), binary=True)
        else:
            rows = cursor.stream(self._query(_SAMPLED), [self._sampled_ids()], binary=True)
        with closing(rows) as found:  # type: ignore[type-var]
            while block := list(islice(found, _BLOCK_ROWS)):
                vectors = np.stack([as_vector(row[0]).to_numpy() for row in block])
                yield vectors, [row[1] for row in block]

    def _sampled_ids(self) -> list[str]:
        index = self.index
        column = sql.Identifier(index.column_name).as_string(index.connection)
        row = (
            RawCursor(index.connection)
            .execute(
                _SAMPLED_IDS,
                [
                    index.qualified_table,
                    index.id_column,
                    f"b.{column} IS NOT NULL",
                    _NETWORK_SAMPLE_ROWS if index.network == "torch" else _SAMPLE_ROWS,
                ],
            )
            .fetchone()
        )
        assert row is not None  # noqa: S101
        ids: list[str] = row[0]
        return ids

    def _query(self, statement: LiteralString) -> sql.Composed:
        return sql.SQL(statement).format(
            table=self.index.table,
            id=sql.Identifier(self.index.id_column),
            column=sql.Identifier(self.index.column_name),
            type=sql.SQL(self.index.key_type),
            code=self.index.code_of_row,
        )
