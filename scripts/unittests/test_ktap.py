# SPDX-License-Identifier: GPL-2.0
"""The parser of test results: a failure must never be read as a success."""

import unittest

from vmlib import ktap


def read(text: str, prefix: str = "") -> list[tuple[str, ktap.Outcome]]:
    reader = ktap.Reader(prefix)
    tests: list[ktap.Test] = []
    for line in text.strip("\n").split("\n"):
        tests += reader.feed(line)
    return [(t.name, t.outcome) for t in tests + reader.end()]


class Flat(unittest.TestCase):
    def test_results(self) -> None:
        self.assertEqual(read("KTAP version 1\n1..3\nok 1 a\nnot ok 2 b # why\nok 3 c # SKIP no device"),
                         [("a", "passed"), ("b", "failed"), ("c", "skipped")])

    def test_missing_results_fail(self) -> None:
        got = read("KTAP version 1\n1..3\nok 1 a")
        self.assertEqual([outcome for _, outcome in got], ["passed", "failed", "failed"])

    def test_prefix(self) -> None:
        self.assertEqual(read("1..1\nok 1 a", "x"), [("x.a", "passed")])

    def test_reason_is_kept(self) -> None:
        reader = ktap.Reader()
        reader.feed("1..1")
        reader.feed("# thread 7 in sk_wait")
        (test,) = reader.feed("not ok 1 a # hangs")
        self.assertEqual(test.detail, ["# thread 7 in sk_wait", "hangs"])


KUNIT = """
[    7.1] KTAP version 1
[    7.1] 1..2
[    7.1]     KTAP version 1
[    7.1]     # Subtest: wire
[    7.1]     # module: ib_sdp
[    7.1]     1..2
[    7.1]     ok 1 hello
[    7.1]     {second}
[    7.1] # wire: pass:1 fail:1 skip:0 total:2
[    7.1] {suite}
[    7.1]     KTAP version 1
[    7.1]     # Subtest: stats
[    7.1]     1..1
[    7.1]     ok 1 sum
[    7.1] ok 2 stats
"""


class KUnit(unittest.TestCase):
    def test_suites_are_not_counted_twice(self) -> None:
        got = read(KUNIT.format(second="ok 2 credit", suite="ok 1 wire"))
        self.assertEqual(got, [("wire.hello", "passed"), ("wire.credit", "passed"), ("stats.sum", "passed")])

    def test_failure_inside(self) -> None:
        got = read(KUNIT.format(second="not ok 2 credit", suite="not ok 1 wire"))
        self.assertEqual(got, [("wire.hello", "passed"), ("wire.credit", "failed"), ("stats.sum", "passed")])

    def test_suite_that_fails_by_itself(self) -> None:
        got = read(KUNIT.format(second="ok 2 credit", suite="not ok 1 wire"))
        self.assertIn(("wire", "failed"), got)

    def test_death_inside_a_suite(self) -> None:
        text = KUNIT.format(second="ok 2 credit", suite="").split("    ok 2 credit")[0]
        outcomes = [outcome for _, outcome in read(text)]
        self.assertEqual(outcomes.count("passed"), 1)
        self.assertGreaterEqual(outcomes.count("failed"), 2)


if __name__ == "__main__":
    unittest.main()
