# SPDX-License-Identifier: GPL-2.0
"""The tables of `scripts/bench figures`, and what a run measures."""

import tempfile
import unittest

from vmlib.figures import (
    AUTOMATIC,
    PLANS,
    ROUNDS,
    SETTINGS,
    Measured,
    Plan,
    Results,
    against_best,
    costs,
    lacking,
    minutes,
    stated,
    table,
)

LONGEST_MINUTES = 50
PLAN = Plan("some", "Some rates", "bytes", "bw", {"1": "bw 1", "2": "bw 2"}, ways=(AUTOMATIC, "ZSDP", "AZ-SDP", "TCP"),
            gain={"the paper of 2006": {"2": 1.35}}, points={"the paper of 2004, SDP": {"1": 0.5}})
# A rate, and the us of the sender and of the receiver.
MEASURED: Measured = {AUTOMATIC: [[90.0, 1.0, 2.0], [80.0, 1.0, 2.0], [70.0, 1.0, 2.0]],
                      "ZSDP": [[50.0, 2.0, 2.0], None, [50.0, 2.0, 2.0]],
                      "AZ-SDP": [[100.0, 2.0, 2.0], [100.0, 2.0, 2.0], [150.0, 2.0, 2.0]],
                      "TCP": [[45.0, 5.0, 5.0], [40.0, 5.0, 5.0], [35.0, 5.0, 5.0]]}


class InFolder(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.results = self.open()

    def open(self) -> Results:
        return Results(self.folder, "these programs", "a command")


class Kept(InFolder):
    def test_each_figure_has_all_settings(self) -> None:
        points = {(plan.name, setting, point) for plan, setting, point in lacking(self.results)}
        self.assertEqual(points, {(plan.name, setting, point)
                                  for plan in PLANS for setting in SETTINGS for point in plan.loads})

    def test_a_run_is_short(self) -> None:
        self.assertLess(minutes(lacking(self.results), ROUNDS), LONGEST_MINUTES)

    def test_a_later_run_continues(self) -> None:
        plan, setting, point = lacking(self.results)[0]
        self.results.keep(plan.name, setting, point, {way: [[1.0, 1.0, 1.0]] for way in plan.ways})
        self.assertNotIn((plan, setting, point), lacking(self.open()))
        self.assertIn((plan, setting, point), lacking(Results(self.folder, "other programs", "a command")))

    def test_what_failed_or_has_another_way_is_measured_again(self) -> None:
        plan, setting, point = lacking(self.results)[0]
        failed: Measured = {way: [[1.0, 1.0, 1.0], None] for way in plan.ways}
        fewer: Measured = {way: [[1.0, 1.0, 1.0]] for way in plan.ways[1:]}
        for measured in (failed, fewer):
            self.results.keep(plan.name, setting, point, measured)
            self.assertIn((plan, setting, point), lacking(self.results))


class Compared(InFolder):
    def setUp(self) -> None:
        super().setUp()
        self.results.copies = 1000.0
        self.results.keep(PLAN.name, "2004", "1", MEASURED)

    def test_rounds_are_compared_with_each_other(self) -> None:
        self.assertEqual(against_best(MEASURED, "AZ-SDP", ["ZSDP"], least=False), 2.5)
        self.assertEqual(against_best(MEASURED, AUTOMATIC, ["ZSDP", "TCP"], least=False), 1.8)
        self.assertEqual(against_best(MEASURED, AUTOMATIC, ["ZSDP", "TCP"], least=True), 2.0)
        self.assertIsNone(against_best(MEASURED, "AZ-SDP", ["BSDP"], least=False))

    def test_costs_are_of_both_machines(self) -> None:
        self.assertEqual(costs(MEASURED)["ZSDP"], [[4.0], None, [4.0]])

    def test_the_paper_of_2004_is_in_its_own_setting(self) -> None:
        self.assertEqual(stated(PLAN, "2004", self.results),
                         {"the paper of 2004, SDP": {"1": 0.5 * SETTINGS["2004"] * 1000}})
        self.assertEqual(stated(PLAN, "2006", self.results), {})

    def test_a_table_has_the_papers_points_beside_ours(self) -> None:
        lines = table(PLAN, "2004", self.results).splitlines()
        rows = {line[:31].rstrip(): line[31:].split() for line in lines[3:]}
        self.assertEqual(lines[2].split(), ["1", "2"])
        self.assertEqual(rows, {AUTOMATIC: ["80.0", "(70.0-90.0)", "-"],
                                "ZSDP": ["50.0", "(50.0-50.0)", "-"],
                                "AZ-SDP": ["100.0", "(100.0-150.0)", "-"],
                                "TCP": ["40.0", "(35.0-45.0)", "-"],
                                "the paper of 2004, SDP": ["275.0"],
                                "AZ-SDP / ZSDP": ["2.50", "-"],
                                "  the paper of 2006": ["1.35"],
                                "automatic / best": ["0.80", "-"],
                                "automatic / TCP": ["2.00", "-"],
                                "automatic / TCP, processor time": ["0.30", "-"]})
