# SPDX-License-Identifier: GPL-2.0
"""The look at sdpctl's JSON, and the JSON of its snapshots."""

import json
import pathlib
import unittest

from vmlib.schema import Invalid, load, validate

TOP = pathlib.Path(__file__).resolve().parents[2]
SNAPSHOTS = TOP / "tools/sdpctl/tests/snapshots"


class SchemaTest(unittest.TestCase):
    def setUp(self):
        self.root = load(TOP)

    def test_takes_what_fits(self):
        validate({"format": 1, "seconds": 0.5, "counters": {"tx_bytes": 7}}, "watch", self.root)

    def test_refuses_what_does_not(self):
        for bad in (None, [], {}, {"format": 2, "seconds": 1, "counters": {}},
                    {"format": 1, "seconds": True, "counters": {}},
                    {"format": 1, "seconds": "1", "counters": {}},
                    {"format": 1, "seconds": 1, "counters": {"a": -1}},
                    {"format": 1, "seconds": 1, "counters": {"a": "1"}},
                    {"format": 1, "seconds": 1, "counters": {}, "more": 1},
                    {"format": 1, "seconds": 1}):
            with self.assertRaises(Invalid, msg=bad):
                validate(bad, "watch", self.root)

    def test_lets_it_grow(self):
        def look(schema):
            if isinstance(schema, dict):
                self.assertIsNot(schema.get("additionalProperties"), False, schema)
                for part in schema.values():
                    look(part)
        look(self.root)

    def test_refuses_words_it_does_not_know(self):
        with self.assertRaises(Invalid):
            validate(1, "x", {"$defs": {"x": {"multipleOf": 1}}})

    def test_snapshots_fit(self):
        paths = sorted(SNAPSHOTS.glob("*.json"))
        self.assertTrue(paths)
        for path in paths:
            validate(json.loads(path.read_text()), path.stem.split("-")[0], self.root)


if __name__ == "__main__":
    unittest.main()
