# SPDX-License-Identifier: GPL-2.0
"""The schema check of sdpctl's JSON, and the JSON of its snapshots."""

import json
import pathlib
import unittest

from vmlib.schema import End, Invalid, Json, Pace, Process, Setting, Socket, load, validate

TOP = pathlib.Path(__file__).resolve().parents[2]
SNAPSHOTS = TOP / "tools/sdpctl/tests/snapshots"


class SchemaTest(unittest.TestCase):
    def setUp(self) -> None:
        self.root = load(TOP)

    def test_takes_what_fits(self) -> None:
        validate({"format": 1, "seconds": 0.5, "counters": {"tx_bytes": 7}}, "watch", self.root)

    def test_refuses_what_does_not(self) -> None:
        all_bad: tuple[Json, ...] = (
            None, [], {}, {"format": 2, "seconds": 1, "counters": {}},
            {"format": 1, "seconds": True, "counters": {}},
            {"format": 1, "seconds": "1", "counters": {}},
            {"format": 1, "seconds": 1, "counters": {"a": -1}},
            {"format": 1, "seconds": 1, "counters": {"a": "1"}},
            {"format": 1, "seconds": 1, "counters": {}, "more": 1},
            {"format": 1, "seconds": 1})
        for bad in all_bad:
            with self.assertRaises(Invalid, msg=bad):
                validate(bad, "watch", self.root)

    def test_lets_it_grow(self) -> None:
        def look(schema: Json) -> None:
            if isinstance(schema, dict):
                self.assertIsNot(schema.get("additionalProperties"), False, schema)
                for part in schema.values():
                    look(part)
        look(self.root)

    def test_refuses_words_it_does_not_know(self) -> None:
        with self.assertRaises(Invalid):
            validate(1, "x", {"$defs": {"x": {"multipleOf": 1}}})

    def test_types_have_the_same_members(self) -> None:
        for name, kind in (("end", End), ("process", Process), ("pace", Pace), ("socket", Socket),
                           ("setting", Setting)):
            definition = self.root["$defs"][name]
            self.assertEqual(set(kind.__annotations__), set(definition["properties"]), name)
            self.assertEqual(kind.__required_keys__, set(definition["required"]), name)

    def test_snapshots_fit(self) -> None:
        paths = sorted(SNAPSHOTS.glob("*.json"))
        self.assertTrue(paths)
        for path in paths:
            validate(json.loads(path.read_text()), path.stem.split("-")[0], self.root)


if __name__ == "__main__":
    unittest.main()
