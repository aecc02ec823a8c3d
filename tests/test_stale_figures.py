"""No committed score was made with other settings than the method of its name has today."""

import json
from pathlib import Path

import pytest
from fixtures.usps import shared_file
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


#: Programs that draw random numbers on which their scores depend.
DRAWING = {"LSH", "ITQ", "SGH", "SGH_full", "COSDISH"}


def test_the_settings_of_the_programs_score_as_they_do():
    """Each row of the reference: within .01, or .025 if one run of the program was drawn."""
    off = {
        (line["dataset"], line["method"], line["bits"]): max(map(abs, line["difference"].values()))
        for line in read("presets")["results"]
        if line["part"] == "reference" and line["codes"] == "hashed"
    }
    for (_, method, _), most in off.items():
        assert most <= (0.025 if method in DRAWING else 0.01), (method, most)
    papers = script("benchmarks/papers.py")
    short = {whole: data for data, whole in papers.REFERENCES.items()}
    shared_file("reference_scores.csv")
    assert set(off) == {(short[whole], *row) for whole, *row in papers.reference()}


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
