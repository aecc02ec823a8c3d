"""Words: the field's own terms, and no phrases that a newcomer reads twice."""

import functools
import re
import subprocess

import pytest
from fixtures.pages import REPOSITORY

# Generated from the help of the command line, and from the functions of the templates.
GENERATED = ("docs/cli.md", "tests/golden")
PHRASES = {
    "of ours": "of pg_hashindex",
    "nobody": "no session, no role, no query",
    r"mend(s|ed|ing|able)?": "repair, fix",
    "anew": "again",
    "foretold": "predicted",
    "for want of": "for lack of",
    "go on": "continue",
    "time is over": "the deadline has passed",
    "meanwhile made|made anew": "recreated, built again",
    "no surprise": "expected",
    "made up for": "caught up",
    "which is none|is nothing that": "unknown option x",
    "no plain file": "not a regular file",
    "of now": "current",
    "finds? less": "recall is lower",
    "(where|if) all is there": "if the index is complete",
    r"(is|are|was|were|be|been) (told|said|asked)(?! for)": "is given, run, printed",
    r"what (is|are) of": "the name",
    "none either|thing that is none": "is not one",
    "else knows": "the name",
    "longer than a moment": "the time",
    "no wish to|room for disk": "the field's words",
    r"so many (?!that)": "the number's name",
    r"(?<!there )is no (?!longer|more|such|farther)": "is not a",
}


@functools.cache
def lines():
    """Every line of a text file of the repository, with its place."""
    found = []
    listed = subprocess.run(
        ["git", "ls-files"], cwd=REPOSITORY, check=True, capture_output=True, text=True
    ).stdout.split("\n")
    for name in listed:
        if name == "tests/test_words.py" or name.startswith(GENERATED):
            continue
        if name.endswith((".py", ".sql", ".md", ".ipynb", ".html", ".toml", ".yml", "Makefile")):
            for number, line in enumerate((REPOSITORY / name).read_text().splitlines(), 1):
                found.append((f"{name}:{number}", line))
    return found


@pytest.mark.parametrize("phrase", PHRASES)
def test_phrases_that_have_better_ones(phrase):
    # Names of tests hold phrases with underscores.
    words = phrase.replace(" ", "[ _]")
    pattern = re.compile(rf"(?:\b|_)(?:{words})(?:\b|_)", re.IGNORECASE)
    found = {place: line.strip() for place, line in lines() if pattern.search(line)}
    assert found == {}, f"write: {PHRASES[phrase]}"


def test_comments_begin_with_what_they_are_about():
    begins = re.compile(r"""^\s*(#:?|--|\"{3}) ?(What|Where|Whose|Such|Of) """)
    found = [place for place, line in lines() if ".md:" not in place and begins.match(line)]
    assert found == []
