# SPDX-License-Identifier: GPL-2.0
"""Reads KTAP (Documentation/dev-tools/ktap.rst of the kernel) line by line."""

import re
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

RESULT = re.compile(r"^(\s*)(ok|not ok)\s+(\d+)\s*(?:-\s+)?([^#]*?)\s*(?:#\s*(.*))?$")
PLAN = re.compile(r"^(\s*)1\.\.(\d+)\s*$")
SUBTEST = re.compile(r"^(\s*)# Subtest:\s*(\S.*)$")
VERSION = re.compile(r"^(\s*)K?TAP version \d+$")
# The time stamp that the kernel's log puts before each line.
STAMP = re.compile(r"^\[\s*\d+\.\d+\] ?")


Outcome: TypeAlias = Literal["passed", "failed", "skipped"]


@dataclass
class Test:
    """One result: name (with the names of its suites, joined by dots), "passed", "failed" or "skipped", and the
    explanatory lines."""

    name: str
    outcome: Outcome
    detail: list[str]


@dataclass(eq=False)
class _Level:
    indent: int
    name: str | None = None
    planned: int | None = None
    seen: int = 0
    failed: int = 0
    lines: list[str] = field(default_factory=list)


class Reader:
    """Takes lines by feed(), which returns the Tests that a line completes."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.levels: list[_Level] = []

    def feed(self, line: str) -> list[Test]:
        line = STAMP.sub("", line.rstrip())
        for pattern, handle in ((VERSION, self._version), (SUBTEST, self._subtest),
                                (PLAN, self._plan), (RESULT, self._result)):
            match = pattern.match(line)
            if match:
                return handle(match)
        if self.levels and line.strip():
            self.levels[-1].lines.append(line.strip())
            # Keep only the last lines of a long log.
            del self.levels[-1].lines[:-60]
        return []

    def end(self) -> list[Test]:
        """The tests that were planned but not reported."""
        missing = []
        for level in self.levels:
            if level.planned is None:
                continue
            lack = level.planned - level.seen
            # A suite that is still open is itself the missing result of the level above.
            inner = self.levels.index(level) + 1 < len(self.levels)
            for number in range(lack - (1 if inner else 0)):
                name = self._name(f"(test {level.seen + number + 1} of {level.planned})", level)
                missing.append(Test(name, "failed", ["did not run to its end", *level.lines]))
        return missing

    def _level(self, indent: int) -> _Level:
        while self.levels and self.levels[-1].indent > indent:
            self.levels.pop()
        if not self.levels or self.levels[-1].indent < indent:
            self.levels.append(_Level(indent))
        return self.levels[-1]

    def _name(self, name: str, level: _Level) -> str:
        above = [upper.name for upper in self.levels[:self.levels.index(level) + 1] if upper.name]
        return ".".join([part for part in [self.prefix] if part] + above + [name])

    def _version(self, match: re.Match[str]) -> list[Test]:
        indent = len(match[1])
        while self.levels and self.levels[-1].indent >= indent:
            self.levels.pop()
        self.levels.append(_Level(indent))
        return []

    def _subtest(self, match: re.Match[str]) -> list[Test]:
        self._level(len(match[1])).name = match[2].strip()
        return []

    def _plan(self, match: re.Match[str]) -> list[Test]:
        self._level(len(match[1])).planned = int(match[2])
        return []

    def _result(self, match: re.Match[str]) -> list[Test]:
        indent, good, name, directive = len(match[1]), match[2] == "ok", match[4], match[5] or ""
        inner = next((level for level in self.levels if level.indent > indent), None)
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
            # A suite's own line repeats the results of its tests.
            return []
        if directive.upper().startswith("SKIP"):
            return [Test(self._name(name, level), "skipped", [directive[4:].strip()])]
        if directive and not good:
            lines.append(directive)
        if good and inner_lack > 0:
            good = False
            lines.append(f"{inner_lack} of its tests did not run")
        return [Test(self._name(name, level), "passed" if good else "failed", lines)]
