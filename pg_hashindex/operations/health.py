"""The health of an index: the checks of ``hashindex.health`` in the database, and checks of codes.

``sql/170_health.sql`` checks the parts of an index, and that each row has its code. This module
compares codes with a fresh encoding of their rows, projections with those at training, and bits
with each other.
"""

import secrets
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any, Literal, LiteralString, get_args

import numpy as np
from numpy.typing import NDArray
from psycopg import RawCursor, sql
from psycopg.rows import class_row
from scipy.special import entr

from ..db import rows
from ..db.batches import decode_vectors, dimension_of, stream
from ..db.gate import reading
from ..db.server_errors import translated_errors
from ..db.sql_files import query
from ..db.statements import execute, one_row
from ..errors import DatabaseStateError, InvalidInputError
from ..index.catalog import HasRow, IndexRow
from ..index.verifying import as_bits, differing, draw_codes
from ..models.model import Model
from ..models.profiles import Profile, stability_index
from ..quality.doctor_findings import Advice

#: From the best to the worst. A check that could not be made is "unknown", and stands for no fault.
Status = Literal["ok", "unknown", "warning", "broken"]

_SAMPLE_ROWS = 1_000
_BLOCK_ROWS = 1_000
# So near to a cut, rounding may decide. In units of the root mean square of a row's
# projections.
_NEAR_EDGE = 1e-3
# With fewer codes, bits are alike by chance.
_ENOUGH_CODES = 100

_FINDINGS: LiteralString = """
    SELECT h.check_name AS check, h.status, h.value, h.detail, h.advice
    FROM hashindex.health($1, $2) h
"""

_SAMPLED_IDS: LiteralString = """
    SELECT s.ids FROM hashindex._sample_ids($1::regclass, $2::text[], $3, $4) s
"""

_SAMPLED: LiteralString = """
    SELECT b.{column}, c.code::text FROM pg_catalog.unnest($1::text[]) s(id)
    JOIN {table} b ON ({key}) = ({given_key})
    LEFT JOIN {codes} c ON ({code_key}) = ({key}) WHERE b.{column} IS NOT NULL {unlogged}
"""

_EVERY: LiteralString = """
    SELECT b.{column}, c.code::text FROM {table} b
    LEFT JOIN {codes} c ON ({code_key}) = ({key}) WHERE b.{column} IS NOT NULL {unlogged}
"""

_ALIKE = query("health.alike")


@dataclass(frozen=True)
class Finding:
    """The result of a check.

    Parameters
    ----------
    check
        Its name.
    status
        "warning" if answers are right, but could be better or faster, or may become wrong; "broken"
        if answers are wrong or missing.
    value
        The number that the status depends on; None if there was nothing to check.
    detail
        The finding in words.
    advice
        What to do about the finding.
    """

    check: str
    status: Status
    value: float | None
    detail: str
    advice: str | None


@dataclass(frozen=True)
class Health:
    """The findings of all checks of an index.

    Parameters
    ----------
    name
        The name of the index.
    full
        Whether all rows were checked, not a sample.
    """

    name: str
    full: bool
    findings: tuple[Finding, ...]

    @property
    def status(self) -> Status:
        """The worst status of all findings; those that are unknown are left out."""
        known = [f.status for f in self.findings if f.status != "unknown"]
        return max(known, key=get_args(Status).index, default="ok")

    @property
    def worst(self) -> Advice | None:
        """Advice on the first of the worst findings; None if there is none."""
        for level in ("broken", "warning"):
            for one in self.findings:
                if one.status == level:
                    words = "is broken" if level == "broken" else "needs attention"
                    text = f"Index {self.name} {words}: {one.detail}. {one.advice or ''}"
                    return Advice("check", text, level=level)
        return None

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "name": self.name,
            "status": self.status,
            "full": self.full,
            "findings": [asdict(finding) for finding in self.findings],
        }


def check(index: HasRow, *, full: bool = False) -> Health:
    """Check the index, and change nothing.

    Needs SELECT on the table, its codes and the catalog. If row security hides rows from the
    caller, only the others are checked.

    Parameters
    ----------
    full
        Whether to check all rows, which takes minutes for millions, instead of a sample.

    Returns
    -------
    Health
        The finding of each check, with advice. If the table or the codes are missing, only
        checks that need neither are done.

    Raises
    ------
    UnknownIndexError
        If the index was dropped.
    MissingRightsError
        If the table or the codes may not be read.
    """
    index = index.metadata
    with translated_errors(table=index.qualified_table):
        cursor = RawCursor(index.connection, row_factory=class_row(Finding))
        findings = cursor.execute(_FINDINGS, [index.name, full]).fetchall()
        # Codes are not checked if the table or the codes are missing.
        if any(finding.check == "rows_without_code" for finding in findings):
            findings += CodeChecks(index, full).findings()
    return Health(index.name, full, tuple(findings))


def _warned(name: str, bad: bool, value: float, detail: str, advice: str) -> Finding:
    """Return a finding that is a warning with advice if something is bad."""
    return Finding(name, "warning" if bad else "ok", value, detail, advice if bad else None)


def _unknown(name: str) -> Finding:
    detail = "the model has no profile of its training rows, as one that was made by hand"
    return Finding(name, "unknown", None, detail, None)


class CodeChecks:
    """Checks of the codes of an index, by a sample or all of them."""

    def __init__(self, index: IndexRow, full: bool) -> None:
        self.index, self.full = index, full

    def findings(self) -> list[Finding]:
        """Make all checks."""
        try:
            model = self.index.loaded_model
        except (DatabaseStateError, InvalidInputError) as error:
            damaged = [
                Finding(name, "warning", None, str(error), "train the model again")
                for name in ("wrong_codes", "projection_drift", "bit_drift")
            ]
            return damaged + self._of_bits(None)
        return self._of_rows(model) + self._of_bits(model)

    def compare(self, model: Model) -> tuple[int, int, int, NDArray[np.int64] | int]:
        """Compare codes of rows with those that the model gives.

        Returns how many are wrong, how many were compared, how many rows were projected, and their
        counts in the bins of the model's profile; 0 if there are none.
        """
        projected = coded = wrong = 0
        counts: NDArray[np.int64] | int = 0
        for vectors, codes, others in self._blocks():
            coded, wrong = coded + others, wrong + others
            projections = model.project(vectors)
            projected += len(projections)
            if model.profile is not None and len(projections):
                counts = counts + model.profile.counted(projections)
            has_code = np.array([code is not None for code in codes], dtype=bool)
            if has_code.any():
                stored = [code for code in codes if code is not None]
                differs = differing(model, projections[has_code], stored, _NEAR_EDGE)
                coded, wrong = coded + len(differs), wrong + int(differs.sum())
        return wrong, coded, projected, counts

    def _of_rows(self, model: Model) -> list[Finding]:
        try:
            wrong, coded, projected, counts = self.compare(model)
        except InvalidInputError as error:
            detail = f"a row cannot be evaluated: {error}"
            return [
                Finding(name, "warning", None, detail, "fix or delete the row")
                for name in ("wrong_codes", "projection_drift")
            ]
        return [
            self._wrong_codes(coded, wrong),
            self._projections(model.profile, counts, projected),
        ]

    def _wrong_codes(self, coded: int, wrong: int) -> Finding:
        if not coded:
            return Finding("wrong_codes", "ok", None, "there are no codes to check", None)
        if not wrong:
            detail = f"{coded} codes are what the model gives their rows"
            return Finding("wrong_codes", "ok", 0.0, detail, None)
        return Finding(
            "wrong_codes",
            "broken",
            wrong / coded,
            f"{wrong} of {coded} codes are not what the model gives their rows",
            f"find out what wrote past the triggers; pg-hashindex index repair {self.index.name} "
            "--full recomputes wrong codes",
        )

    def _projections(
        self, profile: Profile | None, counts: NDArray[np.int64] | int, rows: int
    ) -> Finding:
        if profile is None:
            return _unknown("projection_drift")
        if isinstance(counts, int):
            return Finding("projection_drift", "ok", None, "there are no rows to check", None)
        index, noise = stability_index(profile.counts, counts)
        mean, worst = max(0.0, float(index.mean())), int(index.argmax())
        return self._drift(
            "projection_drift",
            mean > 0.1 + 13 * noise or index[worst] > 0.25 + 34 * noise,
            mean,
            f"population stability index of projections, mean of the bits {mean:.3f}, bit {worst} "
            f"the most with {max(0.0, index[worst]):.3f}, by {rows} rows",
        )

    def _drift(self, name: str, drifts: bool, value: float, detail: str) -> Finding:
        advice = (
            "rows have drifted from the training rows: train a model on them, and swap it: "
            f"pg-hashindex index swap {self.index.name} --model MODEL"
        )
        return _warned(name, drifts, value, detail, advice)

    def _of_bits(self, model: Model | None) -> list[Finding]:
        """Check the bits of drawn codes: the entropy of each, and how they correlate."""
        n_bits = self.index.n_bits
        # A share among 100,000 codes has an error of 0.002.
        wanted = min(2_000, max(200, 1_000_000 // n_bits))
        if self.full:
            wanted = min(100_000, 50_000_000 // n_bits)
        codes = self.drawn(wanted, secrets.randbelow(1 << 31))
        if not codes:
            names = ["bits", "correlation", "duplicates"] + ["bit_drift"] * (model is not None)
            detail = "there are no codes to check"
            return [Finding(name, "ok", None, detail, None) for name in names]
        bits = as_bits(codes)
        # Bits of neighbouring cuts go together, and a cut may be beyond all values of a projection:
        # judge the bits of the middle one.
        n_cuts = len(self.index.cuts)
        n_projections = n_bits // n_cuts
        first = n_cuts // 2 * n_projections
        signs = bits[:, first : first + n_projections]
        found = [
            self._entropy(signs, first),
            self._correlation(signs, first),
            self._duplicates(codes[:2_000]),
        ]
        if model is not None:
            found.append(self._ones(model.profile, bits))
        return found

    def drawn(self, most: int, seed: int) -> list[str]:
        """Draw codes, as text."""
        return draw_codes(self.index, most, self._share(2_000), seed)

    def _entropy(self, bits: NDArray[np.bool_], first_bit: int) -> Finding:
        share = bits.sum(axis=0) / len(bits)
        entropy = entr([share, 1 - share]).sum(axis=0) / np.log(2)
        worst, silent = int(entropy.argmin()), int((entropy < 0.05).sum())
        detail = (
            f"bit {first_bit + worst} tells the least: it is 1 in {100 * share[worst]:.1f} % of "
            f"codes, an entropy of {entropy[worst]:.3f}; the mean is {entropy.mean():.3f}, shares "
            f"of ones are {100 * share.min():.1f} to {100 * share.max():.1f} %, by {len(bits)} "
            "codes"
        )
        if silent > 1:
            detail += f"; {silent} bits are nearly the same for all rows"
        bad = len(bits) >= _ENOUGH_CODES and bool(silent or entropy.mean() < 0.5)
        advice = (
            "train a model on rows as they are now, or one of fewer bits or another method, and "
            "swap it"
        )
        return _warned("bits", bad, float(entropy[worst]), detail, advice)

    def _correlation(self, bits: NDArray[np.bool_], first_bit: int) -> Finding:
        n, n_bits = bits.shape
        most = 2_048 if self.full else 512
        numbers = np.arange(n_bits)
        if n_bits > most:
            numbers = np.sort(np.random.default_rng().choice(n_bits, most, replace=False))
        ones = bits.sum(axis=0)
        # A bit that never changes correlates with none.
        numbers = numbers[(ones[numbers] > 0) & (ones[numbers] < n)]
        first, second = np.triu_indices(len(numbers), 1)
        if not len(first):
            detail = f"there are no two bits that differ among {n} codes"
            return Finding("correlation", "ok", None, detail, None)
        values = bits[:, numbers].astype(np.float32)
        counts = ones[numbers].astype(np.float64)
        # The sums are integers below 2**24, which float32 holds exactly.
        both = (values.T @ values)[first, second].astype(np.float64)
        scale = np.sqrt(counts * (n - counts))
        correlation = (both * n - counts[first] * counts[second]) / (scale[first] * scale[second])
        best = np.argsort(-np.abs(correlation), kind="stable")[:3]
        shown = ", ".join(
            f"{first_bit + numbers[first[pair]]} and {first_bit + numbers[second[pair]]} "
            f"({correlation[pair]:.3f})"
            for pair in best
        )
        detail = (
            f"the most correlated bits are {shown}; the mean of all pairs is "
            f"{np.abs(correlation).mean():.3f}, by {n} codes"
        )
        if n_bits > most:
            detail += f" and {most} of {n_bits} bits"
        greatest = float(abs(correlation[best[0]]))
        advice = (
            "bits that are nearly copies add nothing: train a model of fewer bits, or by "
            "another method, and swap it"
        )
        bad = n >= _ENOUGH_CODES and greatest > 0.95
        return _warned("correlation", bad, greatest, detail, advice)

    def _ones(self, profile: Profile | None, bits: NDArray[np.bool_]) -> Finding:
        if profile is None:
            return _unknown("bit_drift")
        n, ones = len(bits), bits.sum(axis=0)
        was = np.stack([profile.rows - profile.ones, profile.ones], axis=1)
        index, noise = stability_index(was, np.stack([n - ones, ones], axis=1))
        mean, worst = max(0.0, float(index.mean())), int(index.argmax())
        return self._drift(
            "bit_drift",
            mean > 0.1 + 5 * noise or index[worst] > 0.25 + 20 * noise,
            mean,
            f"population stability index of shares of ones, mean of the bits {mean:.3f}, bit "
            f"{worst} the most with {max(0.0, index[worst]):.3f}: 1 in {100 * ones[worst] / n:.1f} "
            f"% of codes, at training in {100 * profile.ones[worst] / profile.rows:.1f} %; by {n} "
            "codes",
        )

    def _duplicates(self, codes: list[str]) -> Finding:
        """Count the rows that have a drawn code, among all codes or a sample of three million."""
        share = self._share(40_000)
        distinct, times = np.unique(codes, return_counts=True)
        query = self._query(_ALIKE, part=rows.part(share))
        found = execute(self.index.connection, query, [distinct.tolist()]).fetchall()
        alike = np.ones(len(distinct), dtype=np.int64)
        for number, count in found:
            alike[number - 1] = count
        shared = float(times[alike > 1].sum() / len(codes))
        crowded = float(times[alike > self.index.candidates].sum() / len(codes))
        detail = (
            f"{'at least ' if share < 1 else ''}{100 * shared:.1f} % of rows share their code "
            f"with another, {alike.max()} rows the most common of {len(codes)} codes"
        )
        if crowded:
            detail += (
                f"; {100 * crowded:.1f} % with more than the {self.index.candidates} candidates of "
                "a search"
            )
        advice = (
            "codes do not tell these rows apart: unless the rows are copies themselves, train a "
            "model of more bits on rows as they are now, and swap it"
        )
        bad = len(codes) >= _ENOUGH_CODES and crowded > 0.1
        return _warned("duplicates", bad, shared, detail, advice)

    def _blocks(self) -> Iterator[tuple[NDArray[np.float32], list[str | None], int]]:
        """Yield vectors, and their codes, None where there is none.

        A number follows: of the codes of vectors of another dimension, for which no code is right.
        """
        connection = self.index.connection
        # A set beside the one in use takes its logged keys later.
        unlogged: sql.Composable = sql.SQL("")
        if self.index.state != "used":
            without = self.index.has_no_code(self.index.part("log"))
            unlogged = sql.SQL("AND {}").format(without)
        query = self._query(_EVERY if self.full else _SAMPLED, unlogged=unlogged)
        with connection.transaction(), reading(connection, self.index.names["table"]):
            values = None if self.full else [self._sampled_ids()]
            with closing(stream(connection, query, values, _BLOCK_ROWS)) as blocks:
                for block in blocks:
                    fitting = [row for row in block if dimension_of(row[0]) == self.index.dimension]
                    vectors = np.empty((len(fitting), self.index.dimension), dtype=np.float32)
                    decode_vectors([row[0] for row in fitting], vectors)
                    codes = [row[1] for row in fitting]
                    n_codes = sum(row[1] is not None for row in block)
                    yield vectors, codes, n_codes - sum(code is not None for code in codes)

    def _sampled_ids(self) -> list[str]:
        index = self.index
        column = sql.Identifier(index.column_name).as_string(index.connection)
        values = [index.qualified_table, index.key_columns, f"b.{column} IS NOT NULL", _SAMPLE_ROWS]
        ids: list[str] = one_row(index.connection, _SAMPLED_IDS, values)[0]
        return ids

    def _share(self, pages: int) -> float:
        """Return the share of codes to read: about this number of pages, or all."""
        index = self.index
        return 1.0 if self.full else rows.share_of_pages(index.connection, index.codes, pages)

    def _query(self, statement: LiteralString, **more: sql.Composable) -> sql.Composed:
        return sql.SQL(statement).format(**self.index.names_with_codes | more)
