# SPDX-License-Identifier: GPL-2.0
"""Prints results as they come (TAP) and counts them."""


class Report:
    """The results of a run, flat: every name says where it comes from."""

    def __init__(self):
        self.counts = {"passed": 0, "failed": 0, "skipped": 0}
        self.failures = []

    def add(self, name, outcome, detail=()):
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

    def end(self):
        """Prints the plan and the last line; returns the exit status.

        A run in which nothing passed has shown nothing: it fails too.
        """
        print(f"1..{sum(self.counts.values())}")
        for name in self.failures:
            print(f"# failed: {name}")
        print("{passed} passed, {failed} failed, {skipped} skipped".format(**self.counts), flush=True)
        return 0 if self.counts["passed"] and not self.counts["failed"] else 1
