"""Codes: one model, built on the scratch tables, by each access path and many settings."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from ...index.catalog import Access, Layout, Ranking
from ...index.handle import HashIndex
from ...index.landmarks import landmark_count
from ...models import codes, store
from ...models.model import Model
from .bench import Bench
from .code_ranks import CodeRanks
from .timing import Asked
from .trials import Trial, name_codes

__all__ = ["CANDIDATES", "CodeTrials", "Coded"]

#: Numbers of candidates to choose from.
CANDIDATES = (10, 15, 20, 30, 50, 80, 120, 200, 300, 500, 800, 1200, 2000)
#: Ranking, candidates and probes of a search.
Setting = tuple[Ranking, int, int | None]

_PROBES = (8, 16, 32, 64, 112, 160, 200)
# The part of a sample's lists that may be read: of the full table it is a far smaller one.
_MOST_READ = 0.25
# Recalls whose settings are tried besides that of the goal.
_RECALLS = (0.90, 0.95, 0.98, 0.99)
# A line of settings ends where there is little more recall to gain, or little more is wanted.
_ENOUGH = 0.998
_RISE = 0.0005
_MOST_WANTED = 0.99


@dataclass(frozen=True, eq=False)
class Coded:
    """A model, and the places that true neighbours take by its codes.

    Attributes
    ----------
    model : Model
    reference : str, optional
        ``name:version`` where it is stored already: the model of an index.
    layout : {"table", "column"}
    train_s : float
    packed : uint8 (n, ceil(n_bits / 8))
        Codes of the rows of the scratch table.
    full : CodeRanks
        Among the rows of the full table that were read.
    share : float
        Which part of the table those are.
    sample : CodeRanks
        Among the rows of the scratch table.
    """

    model: Model
    reference: str | None
    layout: Layout
    train_s: float
    packed: NDArray[np.uint8]
    full: CodeRanks
    share: float
    sample: CodeRanks

    @property
    def name(self) -> str:
        """Method and length."""
        return name_codes(self.model.method, self.model.n_bits, self.model.levels)

    def recall(self, candidates: int, ranking: Ranking) -> float:
        """Return the recall of a scan of the full table."""
        return self.full.recall(candidates, ranking, self.share)

    def least(self, recall: float, ranking: Ranking, choices: Sequence[int]) -> int:
        """Return the least number of candidates whose scan reaches a recall, or the last."""
        return self.full.least(recall, ranking, choices, self.share)


class CodeTrials:
    """One model on the scratch table, where it stays until it is dropped.

    Parameters
    ----------
    bench : Bench
    coded : Coded
    """

    def __init__(self, bench: Bench, coded: Coded) -> None:
        self.bench, self.coded = bench, coded
        self.index: HashIndex | None = None
        self.choices = tuple(c for c in CANDIDATES if c >= bench.goal.k) or (bench.goal.k,)
        self._model_name: str | None = None
        self._model_bytes = 0
        self._encode_s = 0.0
        self._each_ms = 0.0
        self._ranking: Ranking = "hamming"
        self._more: list[list[object]] = []

    def build(self) -> None:
        """Store the model, and encode the scratch table."""
        bench, coded = self.bench, self.coded
        connection, model = bench.connection, coded.model
        reference = coded.reference
        if reference is None:
            self._model_name = f"{bench.scratch.token}_{model.method}_{model.n_bits}_{model.levels}"
            saved = store.save(connection, replace(model, name=self._model_name))
            reference = f"{saved.name}:{saved.version}"
        self._model_bytes = store.describe(connection, reference).size_bytes
        bench.say(f"encoding {bench.scale.sample} rows by {coded.name}")
        start = time.perf_counter()
        self.index = HashIndex.create(
            connection,
            bench.scratch.token,
            table=bench.table.as_string(connection),
            column="embedding",
            id_column="id",
            model=reference,
            metric=bench.metric,
            layout=coded.layout,
        )
        self.index.encode()
        self._ranking = self.index.ranking
        self._encode_s = time.perf_counter() - start
        codes_of_queries = codes.to_postgres(model.encode(bench.drawn.Q), model.n_bits)
        if model.network is not None:
            self._more = [[code] for code in codes_of_queries]
        # What each code costs that is read and is none of the nearest.
        count = sql.SQL(
            "SELECT NULL, count(*)::float8 FROM {} WHERE bit_count({} # $2::bit({})) < 0 "
            "AND $1 IS NOT NULL"
        ).format(
            self.index.codes,
            sql.Identifier(self.index.code_column),
            sql.Literal(model.n_bits),
        )
        asked = bench.ask(count, [[code] for code in codes_of_queries], most_seconds=0.5)
        # Without what a statement takes in any case.
        self._each_ms = max(asked.p50_ms - bench.empty_ms, 0.0) / bench.scale.sample

    def drop(self) -> None:
        """Take everything down that was built."""
        if self.bench.connection.closed:
            return
        if self.index is not None:
            self.index.drop()
            self.index = None
        if self._model_name is not None:
            store.drop(self.bench.connection, self._model_name)
            self._model_name = None

    def try_path(self, access: Access) -> None:
        """Build an access path, and try it with many settings."""
        bench, index = self.bench, self.index
        assert index is not None  # noqa: S101
        built = 0.0
        if access != "scan":
            bench.say(f"building {access} of {bench.scale.sample} rows by {self.coded.name}")
            start = time.perf_counter()
            index.configure(access=access).encode()
            built = time.perf_counter() - start
        bench.say(f"measuring {self.coded.name} by {access}")
        summary = index.summary()
        tables = 2 if access == "landmarks" else 1
        n_bytes = bench.scale.size(summary.code_bytes + summary.access_bytes, tables)
        build_s = (bench.scale.graph_seconds if access == "hnsw" else bench.scale.amount)(built)
        if access != "landmarks" or self.coded.model.network is not None:
            # Landmarks are built with codes in one pass, where SQL evaluates the model.
            build_s += bench.scale.amount(self._encode_s)
        fixed = Trial(
            "codes",
            recall=0.0,
            bytes=n_bytes + self._model_bytes,
            build_s=round(self.coded.train_s + build_s, 2),
            sample_recall=0.0,
            method=self.coded.model.method,
            bits=self.coded.model.n_bits,
            levels=self.coded.model.levels,
            own=self.coded.reference is not None,
            access=access,
        )
        enough = min(max(_MOST_WANTED, bench.goal.recall + _RISE), _ENOUGH)
        first = len(bench.trials)
        for line in self._lines(access):
            _walk(line, partial(self._point, fixed), enough)
        self._ask_again(first)

    def _lines(self, access: Access) -> Iterator[list[Setting]]:
        """Yield settings of rising cost and recall."""
        best, *others = self.coded.full.rankings
        wanted = sorted({*_RECALLS, self.bench.goal.recall})
        kept = {recall: self.coded.least(recall, best, self.choices) for recall in wanted}
        if access == "landmarks":
            # Lists lose some rows, so candidates have to lose fewer.
            above = max((1 + self.bench.goal.recall) / 2, _RECALLS[-2])
            higher = min((1 + above) / 2, _ENOUGH)
            chosen = {self.coded.least(recall, best, self.choices) for recall in (above, higher)}
            for candidates in sorted(chosen):
                yield [(best, candidates, probes) for probes in self._probes()]
            return
        yield [(best, candidates, None) for candidates in sorted(set(kept.values()))]
        if access == "scan":
            for ranking in others:
                least = self.coded.least(self.bench.goal.recall, ranking, self.choices)
                yield [(ranking, least, None)]

    def _probes(self) -> list[int]:
        """Return the numbers of probes that the scratch table tells something about."""
        bench = self.bench
        most = _PROBES[-1]
        if not bench.scale.whole:
            most = int(max(_MOST_READ * landmark_count(bench.scale.sample), _PROBES[0]))
        if most < _PROBES[-1]:
            bench.leave_out(
                f"landmarks with more than {most} probes: a sample of {bench.scale.sample} rows "
                "has too few lists to tell"
            )
        return [probes for probes in _PROBES if probes <= most]

    def _point(self, fixed: Trial, setting: Setting) -> Trial:
        bench = self.bench
        bench.check_time()
        ranking, candidates, probes = setting
        asked = self._ask(setting)
        recall = asked.recall(bench.truth, bench.goal.k)
        trial = replace(
            fixed,
            recall=round(self._recall(fixed.access, recall, ranking, candidates), 4),
            sample_recall=round(recall, 4),
            ranking=ranking,
            candidates=candidates,
            probes=probes,
        ).timed(asked, partial(self._time, fixed.access))
        bench.trials.append(trial)
        return trial

    def _ask_again(self, first: int) -> None:
        """Time the fastest trial that reaches the goal once more: other work only adds to times."""
        trials, goal = self.bench.trials, self.bench.goal
        reaching = [
            place for place in range(first, len(trials)) if trials[place].recall >= goal.recall
        ]
        if not reaching:
            return
        place = min(reaching, key=lambda place: trials[place].p50_ms)
        trial = trials[place]
        asked = self._ask((trial.ranking or "hamming", trial.candidates or 0, trial.probes))
        if asked.p50_ms < trial.sample_p50_ms:
            trials[place] = trial.timed(asked, partial(self._time, trial.access))

    def _ask(self, setting: Setting) -> Asked:
        ranking, index = setting[0], self.index
        if ranking != self._ranking and index is not None:
            index.configure(ranking=ranking)
            self._ranking = ranking
        return self.bench.ask(self._statement(setting), self._more, {})

    def _time(self, access: Access | None, measured: float) -> float:
        scale = self.bench.scale
        if access in ("scan", "lookup"):
            return scale.scan_time(measured, self._each_ms)
        return scale.search_time(measured)

    def _recall(
        self, access: Access | None, measured: float, ranking: Ranking, candidates: int
    ) -> float:
        """Predict the recall of the full table; see `scale`."""
        if self.bench.scale.whole:
            return measured
        by_scan = self.coded.recall(candidates, ranking)
        if access in ("scan", "lookup"):
            return by_scan
        ratio = measured / max(self.coded.sample.recall(candidates, ranking), 1e-9)
        return by_scan * self.bench.scale.recall(ratio)

    def _statement(self, setting: Setting) -> sql.Composed:
        _, candidates, probes = setting
        return sql.SQL("SELECT id, distance FROM hashindex.{}($1, {}{})").format(
            sql.Identifier(f"search_{self.bench.scratch.token}"),
            sql.SQL(", ").join(map(sql.Literal, (self.bench.goal.k, candidates, probes))),
            sql.SQL(", $2" if self._more else ""),
        )


def _walk(
    line: Sequence[Setting],
    point: Callable[[Setting], Trial],
    enough: float,
) -> None:
    recalls: list[float] = []
    for setting in line:
        recalls.append(point(setting).recall)
        if recalls[-1] >= enough or (len(recalls) > 2 and recalls[-1] - recalls[-3] < _RISE):
            return
