"""Write docs/doctor.schema.json, the JSON Schema of doctor --json: python docs/make_schema.py."""

import json
from pathlib import Path

from pydantic import TypeAdapter

from pg_hashindex.quality.doctor_findings import Diagnosis

TARGET = Path(__file__).with_name("doctor.schema.json")


def text() -> str:
    """Return the schema, with one newline at its end."""
    made = TypeAdapter(Diagnosis).json_schema(mode="serialization")
    made["title"] = "pg-hashindex doctor --json"
    made["properties"]["worst_recall"] = {
        "anyOf": [{"type": "number"}, {"type": "null"}],
        "description": Diagnosis.worst_recall.__doc__,
    }
    for one in (made, *made["$defs"].values()):
        # All keys are always there.
        one |= {"required": list(one["properties"]), "additionalProperties": False}
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | made
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text())
