"""The JSON Schema of a spec, for editors: made from the tables that `read` validates with."""

from __future__ import annotations

from typing import Any

from .nodes import NAME_PATTERN, Either, Entries, Fields, Flag, Integer, Many, Node, Number, Text
from .tables import SPEC

Schema = dict[str, Any]


def schema() -> Schema:
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "tritongen spec"}
    return head | describe(SPEC)


def describe(node: Node) -> Schema:
    says: Schema = {"description": node.says}
    match node:
        case Text(choices=choices) if choices:
            return says | {"type": "string", "enum": list(choices)}
        case Text(pattern=pattern):
            return says | {"type": "string", "pattern": pattern or r"\S"}
        case Flag():
            return says | {"type": "boolean"}
        case Number():
            return says | {"type": "number"}
        case Integer(minimum=least, maximum=most, power_of_two=True):
            sizes = [1 << bit for bit in range(most.bit_length()) if least <= 1 << bit <= most]
            return says | {"type": "integer", "enum": sizes}
        case Integer(minimum=least, maximum=most):
            return says | {"type": "integer", "minimum": least, "maximum": most}
        case Many(item=item, least=least):
            array = {"type": "array", "minItems": least, "uniqueItems": True}
            return says | array | {"items": describe(item)}
        case Either(options=options):
            return says | {"anyOf": [describe(option) for option in options]}
        case Entries(value=value, needed=needed):
            table: Schema = {"type": "object", "additionalProperties": describe(value)}
            table["propertyNames"] = {"pattern": NAME_PATTERN}
            return says | table | ({"minProperties": 1} if needed else {})
        case Fields(fields=fields, required=required):
            properties = {name: describe(field) for name, field in fields.items()}
            closed: Schema = {"type": "object", "additionalProperties": False}
            needs = {"required": list(required)} if required else {}
            return says | closed | {"properties": properties} | needs
