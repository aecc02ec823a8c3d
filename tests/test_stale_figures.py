"""No committed score was made with other settings than the method of its name has today."""

import json
import re
from pathlib import Path

import pytest
from test_docs import script

from pg_hashindex.papers import Method
from pg_hashindex.papers.protocols import FIGURES
from pg_hashindex.papers.scores import SCORING

RESULTS = Path(__file__).resolve().parent.parent / "benchmarks" / "results"
AGAIN = "made with other settings than today's; run it again"


def read(name):
    return json.loads((RESULTS / f"{name}.json").read_text())


def made(entry):
    return {"settings": entry.get("settings"), "scoring": entry.get("scoring")}


def test_scores_of_all_methods():
    entrants = script("benchmarks/hashing_entrants.py").ENTRANTS
    stale = {
        (e["dataset"], e["method"])
        for e in read("hashing")["results"]
        if "error" not in e
        and made(e) != {"settings": entrants[e["method"]].method.settings(), "scoring": SCORING}
    }
    assert stale == set(), f"{AGAIN}: python benchmarks/hashing.py --keep --methods ..."


def test_scores_with_few_labels():
    entrants = script("benchmarks/semi_supervised_entrants.py").ENTRANTS
    for name in ("semi_supervised", "semi_supervised_rivals"):
        stale = {
            (run["dataset"], run["method"])
            for run in read(name)["runs"]
            if made(run)
            != {
                "settings": entrants[run["method"]].method(run["dataset"]).settings(),
                "scoring": SCORING,
            }
        }
        assert stale == set(), f"{name}: {AGAIN}: python benchmarks/semi_supervised.py"


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
    assert stale == set(), f"{AGAIN}: python benchmarks/presets.py"


def compared(options):
    """Return the methods of a command line of ``bench hash`` by the names that they have there."""
    named = re.search(r"--methods (\S+)", options)
    hashers = dict(word.partition("=")[::2] for word in named[1].split(","))
    given: dict[str, dict[str, object]] = {name: {} for name in hashers}
    for method, key, text in re.findall(r"--param ([\w-]+)\.(\w+)=(\S+)", options):
        try:
            given[method][key] = json.loads(text)
        except json.JSONDecodeError:
            given[method][key] = text
    return {name: Method(hasher or name, given[name]) for name, hasher in hashers.items()}


@pytest.mark.parametrize("figure", [name for name, f in FIGURES.items() if f.kind == "hash"])
def test_figures_of_the_papers(figure):
    if not (RESULTS / f"protocol_{figure}.json").exists():
        pytest.skip("the figure is not committed")
    methods = compared(FIGURES[figure].options)
    stale = set()
    for outcome in read(f"protocol_{figure}")["outcomes"]:
        if outcome.get("error") is not None:
            continue
        now = methods[outcome["method"]].settings()
        # What was chosen on rows held back is not a setting.
        open_ = set(re.findall(rf"--validate {outcome['method']}\.(\w+)=", FIGURES[figure].options))
        then = outcome["parameters"]
        stale |= {
            (outcome["method"], key, then.get(key, "none"), value)
            for key, value in now.items()
            if key not in open_ and then.get(key, "none") != value
        }
    assert stale == set(), f"{AGAIN}: python benchmarks/protocols.py {figure}"
