# SPDX-License-Identifier: GPL-2.0
"""Reads KTAP (Documentation/dev-tools/ktap.rst of the kernel) line by line."""

import re

RESULT = re.compile(r"^(\s*)(ok|not ok)\s+(\d+)\s*(?:-\s+)?([^#]*?)\s*(?:#\s*(.*))?$")
PLAN = re.compile(r"^(\s*)1\.\.(\d+)\s*$")
SUBTEST = re.compile(r"^(\s*)# Subtest:\s*(\S.*)$")
VERSION = re.compile(r"^(\s*)K?TAP version \d+$")
# The clock that the kernel's log puts before each line.
STAMP = re.compile(r"^\[\s*\d+\.\d+\] ?")


class Test:
    """One result: name (with its suites', joined by dots), "passed", "failed"
    or "skipped", and the lines that explain it."""

    def __init__(self, name, outcome, detail):
        self.name = name
        self.outcome = outcome
        self.detail = detail


class _Level:
    def __init__(self, indent, name):
        self.indent = indent
        self.name = name
        self.planned = None
        self.seen = 0
        self.failed = 0
        self.lines = []


class Reader:
    """Give it lines with feed(); it returns the Tests that each line ends."""

    def __init__(self, prefix=""):
        self.prefix = prefix
        self.levels = []

    def feed(self, line):
        line = STAMP.sub("", line.rstrip())
        for pattern, handle in ((VERSION, self._version), (SUBTEST, self._subtest),
                                (PLAN, self._plan), (RESULT, self._result)):
            match = pattern.match(line)
            if match:
                return handle(match)
        if self.levels and line.strip():
            self.levels[-1].lines.append(line.strip())
            # An endless log is no explanation: the last lines are.
            del self.levels[-1].lines[:-60]
        return []

    def end(self):
        """The tests that were planned and did not come."""
        missing = []
        for level in self.levels:
            if level.planned is None:
                continue
            lack = level.planned - level.seen
            # A suite that is still open is the one result that is missing above it.
            inner = self.levels.index(level) + 1 < len(self.levels)
            for number in range(lack - (1 if inner else 0)):
                name = self._name(f"(test {level.seen + number + 1} of {level.planned})", level)
                missing.append(Test(name, "failed", ["did not run to its end", *level.lines]))
        return missing

    def _level(self, indent):
        while self.levels and self.levels[-1].indent > indent:
            self.levels.pop()
        if not self.levels or self.levels[-1].indent < indent:
            self.levels.append(_Level(indent, None))
        return self.levels[-1]

    def _name(self, name, level):
        above = [l.name for l in self.levels[:self.levels.index(level) + 1] if l.name]
        return ".".join([part for part in [self.prefix] if part] + above + [name])

    def _version(self, match):
        indent = len(match[1])
        while self.levels and self.levels[-1].indent >= indent:
            self.levels.pop()
        self.levels.append(_Level(indent, None))
        return []

    def _subtest(self, match):
        self._level(len(match[1])).name = match[2].strip()
        return []

    def _plan(self, match):
        self._level(len(match[1])).planned = int(match[2])
        return []

    def _result(self, match):
        indent, good, name, directive = len(match[1]), match[2] == "ok", match[4], match[5] or ""
        inner = next((l for l in self.levels if l.indent > indent), None)
        children = inner.seen if inner else 0
        children_failed = inner.failed if inner else 0
        inner_lack = (inner.planned or 0) - children if inner else 0
        lines = list(inner.lines) if inner else []
        level = self._level(indent)
        lines = (level.lines + lines)[-60:]
        level.lines = []
        level.seen += 1
        name = name.strip() or f"test {match[3]}"
        if not good:
            level.failed += 1
        if children and (good or children_failed) and inner_lack <= 0:
            # A suite's own line repeats what its tests have said.
            return []
        if directive.upper().startswith("SKIP"):
            return [Test(self._name(name, level), "skipped", [directive[4:].strip()])]
        if directive and not good:
            lines.append(directive)
        if good and inner_lack > 0:
            good = False
            lines.append(f"{inner_lack} of its tests did not run")
        return [Test(self._name(name, level), "passed" if good else "failed", lines)]
