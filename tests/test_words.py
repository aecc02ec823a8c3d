"""Words: the field's own terms, and no phrases that a newcomer reads twice."""

import re
import subprocess

import pytest
from fixtures.pages import REPOSITORY

# Pages and comments of the product; names in tests may be any words.
PLACES = ("pg_hashindex", "cli", "sql", "alembic", "examples", "docs", "README.md", "SECURITY.md")
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
    "no wish to|room for disk": "the field's words",
    r"so many (?!that)": "the number's name",
    r"(?<!there )is no (?!longer|more|such|farther)": "is not a",
}


def lines():
    """Every line of a text file of those places, with its place."""
    listed = subprocess.run(
        ["git", "ls-files", *PLACES], cwd=REPOSITORY, check=True, capture_output=True, text=True
    ).stdout.split("\n")
    for name in listed:
        if name.endswith((".py", ".sql", ".md", ".ipynb")):
            for number, line in enumerate((REPOSITORY / name).read_text().splitlines(), 1):
                yield f"{name}:{number}", line


@pytest.mark.parametrize("phrase", PHRASES)
def test_phrases_that_have_better_ones(phrase):
    pattern = re.compile(rf"\b{phrase}\b", re.IGNORECASE)
    found = {place: line.strip() for place, line in lines() if pattern.search(line)}
    assert found == {}, f"write: {PHRASES[phrase]}"


def test_comments_begin_with_what_they_are_about():
    begins = re.compile(r"^\s*(#:?|--) (What|Whose|Such|Of) ")
    found = [place for place, line in lines() if ".md:" not in place and begins.match(line)]
    assert found == []
