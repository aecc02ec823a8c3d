"""Loads the packages that come with pg_hashindex: ``python -m app.loading``."""

from collections import Counter

from pgvector import Vector

from pg_hashindex import connect
from pg_hashindex.server.data import load_packages

from .settings import database_url

__all__ = ["load"]

# A word is a tag if this number of names contain it.
_COMMON = 5


def load() -> int:
    """Fill the empty tables; return the number of packages."""
    packages = load_packages()
    words = [set(name.split("-")) for name in packages.name]
    count = Counter(word for of_name in words for word in of_name)
    with connect(database_url()) as connection, connection.transaction():
        cursor = connection.cursor()
        with cursor.copy(
            "COPY packages (id, name, section, description, embedding) FROM STDIN (FORMAT binary)"
        ) as rows:
            rows.set_types(["bigint", "text", "text", "text", "vector"])
            for number, row in enumerate(
                zip(packages.name, packages.section, packages.text, packages.embedding, strict=True)
            ):
                *texts, embedding = row
                rows.write_row((number + 1, *texts, Vector(embedding)))
        with cursor.copy("COPY tags (package_id, label) FROM STDIN") as rows:
            for number, of_name in enumerate(words):
                for word in of_name:
                    if count[word] >= _COMMON:
                        rows.write_row((number + 1, word))
        # COPY with keys of its own leaves the sequence behind.
        connection.execute(
            "SELECT setval(pg_get_serial_sequence('packages', 'id'), max(id)) FROM packages"
        )
        connection.execute("ANALYZE packages, tags")
    return len(packages.name)


if __name__ == "__main__":
    print(f"loaded {load()} packages")
