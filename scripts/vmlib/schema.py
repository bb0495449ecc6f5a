# SPDX-License-Identifier: GPL-2.0
"""JSON against Documentation/sdpctl.schema.json: the few words of JSON Schema that it uses.

Readers must take members that they do not know, for the format grows: the schema allows them. Of
what the tool prints today each must be in it, which is what is checked here.
"""

import json
import os
import pathlib

TYPES = {"object": dict, "array": list, "string": str, "null": type(None), "boolean": bool,
         "integer": int, "number": (int, float)}
KNOWN = {"type", "enum", "minimum", "maximum", "required", "properties", "additionalProperties", "items", "$ref"}


class Invalid(Exception):
    """The value is not as the schema says; the text says where and why."""


def load(top=None):
    """The schema of sdpctl."""
    top = top or os.environ["IB_SDP_TOP"]
    return json.loads((pathlib.Path(top) / "Documentation/sdpctl.schema.json").read_text())


def validate(value, name, root):
    """Checks the value against the definition of that name."""
    _check(value, {"$ref": f"#/$defs/{name}"}, root, name)


def _require(condition, where, why):
    if not condition:
        raise Invalid(f"{where}: {why}")


def _is(value, kind):
    # To Python, true is a number.
    return isinstance(value, TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _check(value, schema, root, where):
    # A word that is not known here would be a rule that nobody checks.
    _require(set(schema) <= KNOWN, where, f"the schema uses {sorted(set(schema) - KNOWN)}")
    if "$ref" in schema:
        _require(schema["$ref"].startswith("#/$defs/"), where, schema["$ref"])
        _check(value, root["$defs"][schema["$ref"][len("#/$defs/"):]], root, where)
    if "type" in schema:
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        _require(any(_is(value, kind) for kind in kinds), where, f"{value!r} is no {kinds}")
    if "enum" in schema:
        _require(value in schema["enum"], where, f"{value!r} is none of {schema['enum']}")
    if "minimum" in schema:
        _require(value >= schema["minimum"], where, f"{value!r} is less than {schema['minimum']}")
    if "maximum" in schema:
        _require(value <= schema["maximum"], where, f"{value!r} is more than {schema['maximum']}")
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            _check(item, schema["items"], root, f"{where}[{index}]")
    if isinstance(value, dict):
        _check_members(value, schema, root, where)


def _check_members(value, schema, root, where):
    for name in schema.get("required", []):
        _require(name in value, where, f"there is no {name}")
    others = schema.get("additionalProperties", "properties" not in schema)
    for name, member in value.items():
        if name in schema.get("properties", {}):
            _check(member, schema["properties"][name], root, f"{where}.{name}")
        elif isinstance(others, dict):
            _check(member, others, root, f"{where}.{name}")
        else:
            _require(others, where, f"{name} is not in the schema")
