# SPDX-License-Identifier: GPL-2.0
"""Validates JSON against Documentation/sdpctl.schema.json, with the part of JSON Schema that it uses.

Readers must accept unknown members, because the format grows: so the schema allows them. But the schema must
contain every member that the tool prints today, and this module checks that it does.
"""

import json
import os
import pathlib
from typing import Any, NotRequired, TypeAlias, TypedDict

# The JSON output of a program. Its structure is known only at run time: then the schema is checked,
# and a test that reads a missing member fails.
Json: TypeAlias = Any
Schema: TypeAlias = dict[str, Json]

TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict, "array": list, "string": str, "null": type(None), "boolean": bool, "integer": int,
    "number": (int, float)}
KNOWN = {"type", "enum", "minimum", "maximum", "required", "properties", "additionalProperties", "items", "$ref"}


class End(TypedDict):
    """An address of a socket, or of its peer."""

    address: str
    port: int


class Process(TypedDict):
    """A process that has a socket open."""

    name: str
    pid: int
    fd: int


class Pace(TypedDict):
    """The speed of a connection, and what limits it."""

    rtt_us: int
    rtt_var_us: int
    min_rtt_us: int
    delivery_rate: int
    bytes_sent: int
    bytes_acked: int
    bytes_received: int
    unacked: int
    notsent_bytes: int
    busy_us: int
    peer_limited_us: int
    buffer_limited_us: int
    last_sent_ms: int
    last_received_ms: int
    last_heard_ms: int


class Socket(TypedDict):
    """A socket of `sdpctl ss`. A module of another version may have no cookie and no pace; this one has."""

    family: str
    state: str
    local: End
    peer: End
    interface: int
    recv_queue: int
    send_queue: int
    uid: int
    inode: int
    netns_cookie: int
    cookie: int
    counters: dict[str, int]
    pace: Pace
    mode: str
    zcopy_threshold: int
    credits: int
    receives_posted: int
    receive_bytes: int
    peer_receive_bytes: int
    sends_posted: int
    send_buffer: int
    receive_buffer: int
    send_memory: int
    receive_memory: int
    keepalive_idle_s: int
    keepalive_interval_s: int
    keepalive_count: int
    user_timeout_ms: int
    error: NotRequired[int]
    features: list[str]
    options: list[str]
    processes: NotRequired[list[Process]]


class Setting(TypedDict):
    """A setting of `sdpctl get`."""

    name: str
    place: str
    value: str
    default: str | None
    unit: str
    allowed: str | None
    at_load: bool
    meaning: str | None
    in_use: NotRequired[int]
    limit: NotRequired[int]


class Invalid(Exception):
    """The value violates the schema; the text says where and why."""


def load(top: str | os.PathLike[str] | None = None) -> Schema:
    """Loads the schema of sdpctl."""
    top = top or os.environ["IB_SDP_TOP"]
    schema: Schema = json.loads((pathlib.Path(top) / "Documentation/sdpctl.schema.json").read_text())
    return schema


def validate(value: Json, name: str, root: Schema) -> None:
    """Checks the value against the definition with that name."""
    _check(value, {"$ref": f"#/$defs/{name}"}, root, name)


def _require(condition: object, where: str, why: str) -> None:
    if not condition:
        raise Invalid(f"{where}: {why}")


def _is(value: Json, kind: str) -> bool:
    # In Python, true is a number.
    return isinstance(value, TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _check(value: Json, schema: Schema, root: Schema, where: str) -> None:
    # Unknown keywords would be rules that nobody checks.
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


def _check_members(value: dict[str, Json], schema: Schema, root: Schema, where: str) -> None:
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
