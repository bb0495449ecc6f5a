# SPDX-License-Identifier: GPL-2.0
"""Prints results as they come (TAP) and counts them."""

import threading
from collections.abc import Iterable

from .ktap import Outcome

# A run ends with its slowest items, and those that used the host's processors most: this many of
# each.
DEAREST = 10


class Report:
    """The results of a run, as a flat list: every name includes its origin. Several threads may report."""

    def __init__(self) -> None:
        self.counts: dict[Outcome, int] = {"passed": 0, "failed": 0, "skipped": 0}
        self.failures: list[str] = []
        self.item_times: dict[str, float] = {}
        self.test_times: dict[str, float] = {}
        self.item_processors: dict[str, float] = {}
        self.lock = threading.RLock()
        self.closed = False

    def add(self, name: str, outcome: Outcome, detail: Iterable[str] = ()) -> None:
        with self.lock:
            if self.closed:
                return
            self.counts[outcome] += 1
            number = sum(self.counts.values())
            detail = list(detail)
            if outcome == "passed":
                print(f"ok {number} {name}", flush=True)
            elif outcome == "skipped":
                print(f"ok {number} {name} # SKIP {' '.join(detail)}", flush=True)
            else:
                self.failures.append(name)
                for line in detail:
                    print(f"#   {line}")
                print(f"not ok {number} {name}", flush=True)

    def passed(self, name: str) -> None:
        self.add(name, "passed")

    def failed(self, name: str, text: str) -> None:
        self.add(name, "failed", str(text).splitlines())

    def skipped(self, name: str, why: str) -> None:
        self.add(name, "skipped", [why])

    def took(self, name: str, seconds: float, of_processors: float) -> None:
        """Records the time of an item of the plan, and its time on the host's processors, in seconds."""
        with self.lock:
            self.item_times[name] = round(seconds, 1)
            self.item_processors[name] = of_processors

    def test_took(self, name: str, seconds: float) -> None:
        """Records the time of a single test."""
        with self.lock:
            self.test_times[name] = round(seconds, 1)

    def close(self) -> None:
        """Ignores later results, because the run was stopped."""
        with self.lock:
            self.closed = True

    def end(self) -> int:
        """Prints the plan and the last line; returns the exit status.

        A run without a passed test proves nothing, so it fails, too.
        """
        with self.lock:
            self.closed = True
            print(f"1..{sum(self.counts.values())}")
            for what, times in (("in all", self.test_times), ("of the host's processors", self.item_processors)):
                for seconds, name in sorted(((s, n) for n, s in times.items()), reverse=True)[:DEAREST]:
                    print(f"# {seconds:6.1f} s {what}  {name}")
            for name in self.failures:
                print(f"# failed: {name}")
            print(", ".join(f"{count} {outcome}" for outcome, count in self.counts.items()), flush=True)
            return 0 if self.counts["passed"] and not self.counts["failed"] else 1
