"""Write what the page loads: the script of schema hashindex, and the demo's rows for COPY."""

import struct
from pathlib import Path

from pgvector import Vector

from pg_hashindex import schema
from pg_hashindex.server.data import load_packages


def field(value: bytes) -> bytes:
    """Return a value of a binary COPY, after its length."""
    return struct.pack("!i", len(value)) + value


def prepare(folder: Path) -> None:
    """Write schema.sql and packages.copy (name, section, description, embedding)."""
    (folder / "schema.sql").write_text(schema.script())
    packages = load_packages()
    rows = zip(packages.name, packages.section, packages.text, packages.embedding, strict=True)
    with (folder / "packages.copy").open("wb") as file:
        file.write(b"PGCOPY\n\xff\r\n\0" + bytes(8))
        for *texts, embedding in rows:
            values = [text.encode() for text in texts] + [Vector(embedding).to_binary()]
            file.write(struct.pack("!h", len(values)) + b"".join(map(field, values)))
        file.write(struct.pack("!h", -1))


if __name__ == "__main__":
    prepare(Path(__file__).parent)
