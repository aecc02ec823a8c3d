"""Choose parameters of a method on training rows that are held back, never on the queries."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import InvalidInputError
from ..hashers.supervision.labels import Labels
from ..quality.scores import Measures
from .methods import Method
from .splits import Split, Truth

# Rows held back: a fifth, at most this many.
_MOST_ROWS = 1_000


@dataclass(frozen=True)
class HeldBack:
    """Training rows as a data set of their own: some are queries, the others are trained on.

    ``split`` is that data set; ``ranked`` is the same with the rows that a query may find as the
    database: those with a label, if labels are the truth.
    """

    split: Split
    ranked: Split
    truth: Truth

    @classmethod
    def of(cls, split: Split, method: Method, truth: Truth, random_state: int) -> "HeldBack":
        """Hold back a fifth of a method's training rows; with labels as truth, of labelled rows."""
        X, y = method.training_data(split)
        if truth.file is not None:
            # It is of other queries.
            truth = Truth("nearest-k", truth.amount)
        eligible = np.arange(len(X))
        if truth.kind == "label" and y is not None:
            indicator = Labels.read(y, len(X)).indicator
            shared = indicator @ (np.asarray(indicator.sum(axis=0)) > 1).astype(np.float32)
            eligible = np.flatnonzero(shared)
        n_held = min(_MOST_ROWS, len(eligible) // 5)
        if not n_held:
            raise InvalidInputError(
                f"{method.name} has {len(eligible)} training rows to hold back from"
                f"{', each with a label that another row has' if truth.kind == 'label' else ''}; "
                "at least 5 are needed to choose parameters"
            )
        rng = np.random.default_rng(random_state)
        held = np.sort(rng.choice(eligible, n_held, replace=False))
        kept = np.setdiff1d(np.arange(len(X)), held)
        known = method.relations(split, method.make(1, random_state), transductive=False)
        places = np.arange(len(kept))
        # The labels that the method may not see are gone.
        numbers = {"query": held, "database": kept, "train": kept, "labelled": places}
        whole = Split.of(X, y, numbers=numbers, **known)
        ranked = whole
        if truth.kind == "label" and whole.labels is not None:
            found = Labels.read(whole.labels, len(kept)).labelled
            ranked = replace(whole, database=whole.database[found], labels=whole.labels[found])
        ranked.relevant(truth)
        return cls(whole, ranked, truth)

    def choose(
        self, method: Method, n_bits: int, measures: Measures, random_state: int
    ) -> tuple[Method, list[dict[str, Any]]]:
        """Train with each combination of values; return the best by MAP.

        Also returns the values of each combination and their ``MAP`` or ``error``. If all fail,
        raises the error of the first.
        """
        variants = method.variants()
        tried: list[dict[str, Any]] = []
        errors: list[Exception] = []
        for variant in variants:
            values = {key: variant.parameters[key] for key in method.choices}
            try:
                tried.append(values | {"MAP": self._score(variant, n_bits, measures, random_state)})
            # Whatever error a value raises, try the others.
            except Exception as error:
                errors.append(error)
                tried.append(values | {"error": " ".join(str(error).split())})
        if len(errors) == len(variants):
            raise errors[0]
        best = max(range(len(variants)), key=lambda number: tried[number].get("MAP", -1.0))
        return variants[best], tried

    def _score(self, method: Method, n_bits: int, measures: Measures, seed: int) -> float:
        hasher = method.make(n_bits, seed)
        X, y, known = method.fit_arguments(self.split, hasher)
        model = hasher.fit(X, y, **known).to_model(method.hasher)
        scores = self.ranked.score(
            model,
            model.encode(self.ranked.database),
            [self.truth],
            Measures((1,), neighbours=1, ties=measures.ties),
        )
        return scores[self.truth.name].values["MAP"]
