# SPDX-License-Identifier: GPL-2.0
"""The plan of a test run: no test may be lost between the plan and its lanes."""

import contextlib
import io
import threading
import time
import unittest
from collections.abc import Iterable
from pathlib import Path

import vmtests
from vmlib.bench import REGISTERED, Bench
from vmlib.plan import (
    ADAPTER_GROUPS,
    ADVERT_GROUPS,
    ADVERTS,
    COMPARED_STATES,
    IWARP_GROUPS,
    LONG_GROUPS,
    MANY_CONNECTIONS,
    SERIES_SCALE,
    SLOW_GROUPS,
    GroupItem,
    Item,
    Plan,
    Queue,
    TestItem,
)
from vmlib.report import Report
from vmlib.setup import Kernel
from vmlib.suite import Lane, Suite

vmtests.load()
GROUPS = {"connect": ["connect/a"], "data": ["data/one_byte", "data/odd"], "zabuse": ["zabuse/a"],
          "azabuse": ["azabuse/a"], "azstall": ["azstall/a"]}
TESTS = Path(__file__).parents[2] / "tools/selftest/src/tests"


def source_of(group: str) -> str:
    """The source file of a group of selftests, in the folder of its subject."""
    [file] = TESTS.rglob(f"{group}.rs")
    return file.read_text()


KERNELS = [Kernel(name, "image", "initrd") for name in ("stock", "debug", "stock-7.2")]


def names(core: bool = False, patterns: Iterable[str] = (), counts: Iterable[int] = (2, 1)) -> list[str]:
    queues = Plan(core, list(patterns), list(counts), GROUPS, {}).queues(KERNELS)
    return [item.name for queue in queues for item in queue.items]


class What(unittest.TestCase):
    def test_all_has_each_test_on_each_of_its_kernels(self) -> None:
        have = names()
        for test in REGISTERED:
            words = {1: "one", 2: "two"}
            with_siw = [kernel.with_siw() for kernel in KERNELS[:2]]
            with_pvrdma = [kernel.with_pvrdma() for kernel in KERNELS]
            for kernel in KERNELS + with_siw + with_pvrdma:
                expected = 1 if kernel.kind in test.kinds and kernel.adapter == test.adapter else 0
                self.assertEqual(have.count(f"{kernel.name}.{words[test.machines]}.{test.name}"), expected)

    def test_core_leaves_out_what_needs_a_download_or_repeats(self) -> None:
        def only_of_all(name: str) -> bool:
            return name.startswith("debian.") or name == "hostile.all_over_iwarp"
        have = {name.split(".", 2)[2] for name in names(core=True) if name.count(".") >= 2}
        for test in REGISTERED:
            self.assertEqual(test.name in have, not only_of_all(test.name), test.name)

    def test_core_is_a_part_of_all(self) -> None:
        self.assertEqual(set(names(core=True)) - set(names()), set())

    def test_groups_of_core_exist(self) -> None:
        for group in ADVERT_GROUPS + IWARP_GROUPS + ADAPTER_GROUPS + SLOW_GROUPS + tuple(LONG_GROUPS):
            self.assertTrue(source_of(group))

    def test_core_leaves_many_connections_to_the_stock_kernel(self) -> None:
        groups = {"stress": [*MANY_CONNECTIONS, "stress/churn"]}
        queues = Plan(True, [], [2, 1], groups, {}).queues(KERNELS)
        inside = {queue.name: item.tests for queue in queues for item in queue.items if isinstance(item, GroupItem)}
        self.assertEqual(inside["debug.one"], ["stress/churn"])
        self.assertEqual(inside["stock.two"], groups["stress"])
        debug = KERNELS[1]
        for kernel, expected in ((debug, groups["stress"]), (debug.with_siw(), ["stress/churn"])):
            everything = Plan(False, [], [1], groups, {}).queues([kernel])[0].items
            self.assertEqual([item.tests for item in everything if isinstance(item, GroupItem)], [expected])

    def test_only_a_run_of_everything_is_long(self) -> None:
        groups = {group: [f"{group}/a"] for group in LONG_GROUPS}
        for core, patterns, long in ((False, [], True), (True, [], False), (False, ["fuzz/"], False)):
            queues = Plan(core, patterns, [1], groups, {}).queues(KERNELS[:1])
            items = [item for queue in queues for item in queue.items if isinstance(item, GroupItem)]
            self.assertTrue(items)
            for item in items:
                group = item.tests[0].partition("/")[0]
                self.assertEqual(item.scale, LONG_GROUPS[group] if long else 1)

    def test_random_calls_have_a_fixed_time_on_one_machine(self) -> None:
        groups = {"fuzz": ["fuzz/calls"], "data": ["data/a"]}

        def times(patterns: list[str]) -> dict[str, tuple[int | None, int | None]]:
            queues = Plan(False, patterns, [2, 1], groups, {}, 7, 600).queues(KERNELS)
            return {item.name: (item.seed, item.seconds) for queue in queues for item in queue.items
                    if isinstance(item, GroupItem)}
        everything = times([])
        self.assertEqual(everything["stock.one.selftest.fuzz/"], (7, 600))
        self.assertEqual(everything["stock.one.adverts.fuzz/"], (7, None))
        self.assertEqual(everything["stock.two.selftest.fuzz/"], (7, None))
        self.assertEqual(everything["debug.one.selftest.fuzz/"], (7, None))
        self.assertEqual(everything["stock.one.selftest.data/"], (None, None))
        self.assertEqual(times(["debug.one.selftest.fuzz/"]), {"debug.one.selftest.fuzz/": (7, 600)})

    def test_a_fixed_time_decides_about_the_order(self) -> None:
        groups = {"data": ["data/a"], "fuzz": ["fuzz/calls"]}
        queues = Plan(False, ["fuzz/", "data/"], [1], groups, {"stock.one.selftest.data/": 500}, 7, 600).queues(KERNELS)
        queue = next(queue for queue in queues if queue.name == "stock.one")
        self.assertEqual([item.name for item in queue.items[:2]],
                         ["stock.one.selftest.fuzz/", "stock.one.adverts.fuzz/"])
        self.assertGreater(queue.seconds(), 1700)

    def test_core_uses_less_on_older_series(self) -> None:
        queues = Plan(True, [], [1], {"data": ["data/a"]}, {}).queues(KERNELS)
        scales = {queue.name: {item.scale for item in queue.items if isinstance(item, GroupItem)} for queue in queues}
        self.assertEqual((scales["stock.one"], scales["stock-7.2.one"]), ({1}, {SERIES_SCALE}))

    def test_many_connections_exist(self) -> None:
        for name in (*MANY_CONNECTIONS, *COMPARED_STATES):
            group, test = name.split("/")
            self.assertIn(f"fn {test}(", source_of(group))

    def test_core_has_slow_groups_over_the_adapter(self) -> None:
        self.assertEqual([name for name in names(core=True) if "azstall" in name], [])
        self.assertIn("stock.two.selftest.azstall/", names())
        self.assertIn("stock-pvrdma.two.mishaps.stalled_receives", names(core=True))

    def test_core_has_asynchronous_groups_once_on_each_stock_kernel(self) -> None:
        have = [name for name in names(core=True) if name.endswith("azabuse/")]
        self.assertEqual(len([name for name in have if name.startswith("stock.")]), 1)
        self.assertEqual(len([name for name in have if name.startswith("stock-7.2.")]), 1)
        self.assertIn("debug.one.selftest.azabuse/", have)
        self.assertIn("stock.two.selftest.azabuse/", names())

    def test_core_has_by_adverts_what_uses_them(self) -> None:
        self.assertIn("stock.one.adverts.azabuse/", names(core=True))
        self.assertNotIn("stock.one.adverts.connect/", names(core=True))
        for place in ("stock.two.selftest", "debug.one.selftest", "stock-7.2.one.adverts"):
            self.assertIn(f"{place}.connect/", names(core=True))

    def test_soft_iwarp_has_the_suite_inside(self) -> None:
        self.assertIn("stock-siw.two.selftest.azabuse/", names())
        self.assertIn("debug-siw.one.selftest.data/", names())
        self.assertIn("stock-siw.one.adverts.data/", names(core=True))
        self.assertNotIn("stock-siw.one.adverts.azabuse/", names(core=True))

    def test_soft_iwarp_is_chosen_only_by_name(self) -> None:
        self.assertEqual([n for n in names(patterns=["data/odd"]) if "siw" in n], [])
        self.assertEqual(names(patterns=["stock-siw.two.selftest.data/odd"]), ["stock-siw.two.selftest.data/"])

    def test_the_adapter_has_the_suite_inside(self) -> None:
        self.assertIn("stock-pvrdma.two.selftest.azabuse/", names())
        self.assertIn("stock-7.2-pvrdma.one.adverts.data/", names())
        self.assertIn("debug-pvrdma.two.selftest.azabuse/", names())
        self.assertIn("stock-pvrdma.two.adverts.data/", names(core=True))
        self.assertNotIn("stock-pvrdma.two.adverts.azabuse/", names(core=True))
        self.assertEqual([name for name in names(core=True) if "7.2-pvrdma" in name or "debug-pvrdma" in name], [])

    def test_the_adapter_is_chosen_only_by_name(self) -> None:
        self.assertEqual([name for name in names(patterns=["data/odd"]) if "pvrdma" in name], [])
        self.assertEqual(names(patterns=["stock-pvrdma.two.selftest.data/odd"]), ["stock-pvrdma.two.selftest.data/"])

    def test_kunit_runs_once(self) -> None:
        self.assertEqual(names().count("kunit"), 1)
        self.assertEqual(names(counts=(1,)).count("kunit"), 1)

    def test_pattern_chooses_tests_of_a_group(self) -> None:
        queues = Plan(False, ["data/odd"], [1], GROUPS, {}).queues(KERNELS[:1])
        items = [item for queue in queues for item in queue.items if isinstance(item, GroupItem)]
        self.assertEqual([item.tests for item in items], [["data/odd"]] * 2)

    def test_a_wrong_name_chooses_nothing(self) -> None:
        self.assertEqual(names(patterns=["no such test"]), [])


def nothing(_: Bench) -> None:
    """The body of a test."""


def anything(_: Item) -> bool:
    return True


class Order(unittest.TestCase):
    def test_longest_first_and_what_breaks_last(self) -> None:
        items = [TestItem("short", nothing), TestItem("breaks", nothing, breaks=True), TestItem("long", nothing),
                 TestItem("other", nothing, parameters=ADVERTS)]
        times = {"short": 1, "long": 9, "breaks": 99, "other": 50}
        queue = Queue(KERNELS[0], 1, items, times)
        taken = [queue.take("", anything) for _ in items]
        self.assertEqual([item.name for item in taken if item], ["long", "short", "other", "breaks"])
        self.assertIsNone(queue.take("", anything))

    def test_what_fits_goes_before_what_is_longer(self) -> None:
        items = [TestItem(name, nothing, breaks=name == "breaks") for name in ("short", "long", "breaks")]
        queue = Queue(KERNELS[0], 1, items, {"short": 1, "long": 9})

        def take(*fitting: str) -> str | None:
            item = queue.take("", lambda item: item.name in fitting)
            return item.name if item else None
        # What breaks the machines waits for the others.
        self.assertIsNone(take("breaks"))
        self.assertEqual(take("short", "breaks"), "short")
        self.assertIsNone(take("breaks"))
        self.assertEqual(take("long", "breaks"), "long")
        self.assertEqual(take("breaks"), "breaks")

    def test_most_urgent_lane_is_waited_for(self) -> None:
        debug = Queue(KERNELS[1], 1, [TestItem(name, nothing) for name in ("a", "b")], {"a": 900, "b": 900})
        stock = Queue(KERNELS[0], 1, [TestItem(name, nothing) for name in ("c", "d")], {"c": 700, "d": 90})
        suite = Suite([stock, debug], Report(), 1, {"c": 0.2})
        # Room for one lane of the debug kernel and one of the stock kernel.
        suite.load_left = 1.4
        lanes = [suite.begin()]
        waiting = threading.Thread(target=lambda: lanes.append(suite.begin()), daemon=True)
        waiting.start()
        end = time.monotonic() + 20
        while not suite.kept:
            self.assertLess(time.monotonic(), end, "no lane is waited for")
            time.sleep(0.01)
        # A light item does not take the room that the next lane of the debug kernel needs.
        self.assertFalse(suite.fits(suite.load_of(stock, stock.items[0]) + suite.kept))
        assert lanes[0] is not None
        suite.leave(lanes[0])
        waiting.join(20)
        self.assertEqual([lane.queue for lane in lanes if lane], [debug, debug])
        self.assertEqual(suite.kept, 0)
        self.assertTrue(suite.fits(suite.load_of(stock, stock.items[0]) + suite.kept))

    def test_older_series_is_last(self) -> None:
        older = Queue(Kernel("stock-7.2", "", ""), 1, [TestItem("older", nothing)], {"older": 900})
        newest = Queue(KERNELS[0], 1, [TestItem("newest", nothing)], {"newest": 9})
        suite = Suite([older, newest], Report(), 1, {})
        suite.load_left = 9
        lanes = [suite.begin(), suite.begin()]
        self.assertEqual([lane.queue for lane in lanes if lane], [newest, older])

    def test_time_limit_skips_what_has_not_started(self) -> None:
        group = GroupItem("stock.one.selftest", "data", ["data/a", "data/b"], "")
        queue = Queue(KERNELS[0], 1, [TestItem("long", nothing), group], {"long": 9, group.name: 1})
        report = Report()
        suite = Suite([queue], report, 1, {}, time.time() + 3600)
        suite.load_left = 9
        lane = suite.begin()
        assert lane is not None
        item = suite.take(lane, "")
        assert item is not None
        self.assertEqual(item.name, "long")
        suite.done(lane)
        suite.until = time.time() + 60
        self.assertIsNone(suite.take(lane, ""))
        self.assertIsNone(suite.begin())
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            suite.skip(queue)
        self.assertEqual(report.counts, {"passed": 0, "failed": 0, "skipped": 2})
        self.assertIn("stock.one.selftest.data/a # SKIP no time left", out.getvalue())

    def test_lane_without_an_item_is_not_booted(self) -> None:
        queue = Queue(KERNELS[0], 1, [TestItem(name, nothing) for name in ("a", "b")], {"a": 900, "b": 900})
        suite = Suite([queue], Report(), 1, {})
        suite.load_left = 9
        lanes = [suite.begin(), suite.begin()]
        self.assertEqual(suite.waiting(), [])
        lane = lanes[0]
        assert lane is not None
        self.assertIsNotNone(suite.take(lane, ""))
        # The other lane takes what is left.
        self.assertEqual(suite.waiting(), [])
        suite.done(lane)
        self.assertEqual((queue.idle, suite.waiting()), (2, []))

    def test_load_of_items(self) -> None:
        queue = Queue(KERNELS[0], 1, [TestItem(name, nothing) for name in ("heavy", "light", "unknown")],
                      {"heavy": 900, "light": 90, "unknown": 9})
        suite = Suite([queue], Report(), 1, {"heavy": 1.2, "light": 0.2})
        suite.load_left = 1.5
        lanes = [Lane(suite, queue, number) for number in range(3)]

        def take(lane: Lane) -> str | None:
            item = suite.take(lane, "")
            return item.name if item else None
        self.assertEqual(take(lanes[0]), "heavy")
        self.assertEqual(take(lanes[1]), "light")
        self.assertAlmostEqual(suite.load_left, 0.1)
        suite.leave(lanes[0])
        # An item that was never measured counts as its kernel's lanes while they boot.
        self.assertEqual(take(lanes[2]), "unknown")
        self.assertAlmostEqual(suite.load_left, 0.8)
        suite.leave(lanes[1])
        suite.leave(lanes[2])
        self.assertAlmostEqual(suite.load_left, 1.5)
        self.assertEqual(suite.running, 0)
