"""No committed score was made with other settings than the method of its name has today."""

import json
from pathlib import Path

import pytest
from test_docs import script

from pg_hashindex.papers import Method
from pg_hashindex.papers.figures import FIGURES
from pg_hashindex.quality.scores import SCORING

RESULTS = Path(__file__).resolve().parent.parent / "benchmarks" / "results"
AGAIN = "made with other settings than today's; run it again"


def read(name):
    return json.loads((RESULTS / f"{name}.json").read_text())


def made(entry):
    return {"settings": entry.get("settings"), "scoring": entry.get("scoring")}


def test_scores_of_all_methods():
    entrants = script("benchmarks/papers_methods.py").ENTRANTS
    stale = {
        (e["dataset"], e["method"])
        for e in read("hashing")["results"]
        if "error" not in e
        and made(e) != {"settings": entrants[e["method"]].method.settings(), "scoring": SCORING}
    }
    assert stale == set(), f"{AGAIN}: python benchmarks/papers.py hashing"


def test_scores_of_the_presets():
    stale = set()
    for line in read("presets")["results"]:
        if line["part"] != "changes" or line["change"] not in ("default", "paper", "program"):
            continue
        now = Method(line["method"].split()[0], preset=line["change"]).settings()
        # The task sets these: rows of unit length, and the loss that the line is about.
        stale |= {
            (line["dataset"], line["method"], line["change"], name)
            for name, value in now.items()
            if name not in ("normalize", "loss") and line["settings"].get(name, "none") != value
        }
    assert stale == set(), f"{AGAIN}: python benchmarks/papers.py presets"


@pytest.mark.parametrize("figure", [name for name, f in FIGURES.items() if f.command])
def test_figures_of_the_papers(figure):
    compared = FIGURES[figure].compared
    stale = set()
    for outcome in read(f"papers/{figure}")["outcomes"]:
        if outcome.get("error") is not None:
            continue
        name, then = outcome["method"], outcome["parameters"]
        now = Method(compared.methods[name], compared.parameters.get(name, {})).settings()
        stale |= {
            (name, key, then.get(key, "none"), value)
            for key, value in now.items()
            # A choice on rows held back is not a setting.
            if key not in compared.choices.get(name, ()) and then.get(key, "none") != value
        }
    assert stale == set(), f"{AGAIN}: pg-hashindex bench paper --figure {figure}"
