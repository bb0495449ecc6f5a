# SPDX-License-Identifier: GPL-2.0
"""Prints results as they come (TAP) and counts them."""

import threading

# A run ends with what took longest, and with what used the host's processors most: so many of each.
DEAREST = 10


class Report:
    """The results of a run, flat: every name says where it comes from. Several threads may report."""

    def __init__(self):
        self.counts = {"passed": 0, "failed": 0, "skipped": 0}
        self.failures = []
        self.item_times = {}
        self.test_times = {}
        self.item_processors = {}
        self.lock = threading.RLock()
        self.closed = False

    def add(self, name, outcome, detail=()):
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

    def passed(self, name):
        self.add(name, "passed")

    def failed(self, name, text):
        self.add(name, "failed", str(text).splitlines())

    def skipped(self, name, why):
        self.add(name, "skipped", [why])

    def took(self, name, seconds, of_processors):
        """How long an item of the plan took, and how many seconds of the host's processors."""
        with self.lock:
            self.item_times[name] = round(seconds, 1)
            self.item_processors[name] = of_processors

    def test_took(self, name, seconds):
        """How long a single test took."""
        with self.lock:
            self.test_times[name] = seconds

    def close(self):
        """What comes after this is not a result: the run was stopped."""
        with self.lock:
            self.closed = True

    def end(self):
        """Prints the plan and the last line; returns the exit status.

        A run in which nothing passed has shown nothing: it fails too.
        """
        with self.lock:
            self.closed = True
            print(f"1..{sum(self.counts.values())}")
            for what, times in (("in all", self.test_times), ("of the host's processors", self.item_processors)):
                for seconds, name in sorted(((s, n) for n, s in times.items()), reverse=True)[:DEAREST]:
                    print(f"# {seconds:6.1f} s {what}  {name}")
            for name in self.failures:
                print(f"# failed: {name}")
            print("{passed} passed, {failed} failed, {skipped} skipped".format(**self.counts), flush=True)
            return 0 if self.counts["passed"] and not self.counts["failed"] else 1
