# SPDX-License-Identifier: GPL-2.0
"""Finds in a kernel's log what must never be there."""

import re

# What a checker of the kernel, or the kernel itself, prints when it found a bug.
COMPLAINT = re.compile("|".join([
    r"\bWARNING:", r"\bBUG[: ]", r"\bOops\b", r"kernel BUG at", r"general protection fault",
    r"[Uu]nable to handle", r"Kernel panic", r"panicked at", r"\bKASAN:", r"\bUBSAN:", r"\bODEBUG:",
    r"INFO: (?:possible|trying|inconsistent|lockdep|rcu|task)", r"suspicious RCU", r"inconsistent lock state",
    r"blocked for more than", r"self-detected stall", r"detected stall", r"soft lockup", r"workqueue lockup",
    r"unregister_netdevice: waiting", r"refcount_t:", r"ref_tracker:", r"scheduling while atomic",
    r"sleeping function called", r"list_(?:add|del) corruption", r"Bad page", r"Bad rss-counter",
    r"page allocation failure", r"new suspected memory leaks", r"unreferenced object", r"pool destroyed with unfree",
]))

# Lines that look alike and are none: with mitigations=off the kernel says so; and where tests have
# allocations fail, that of a tracker does, too, which then tracks nothing.
HARMLESS = re.compile(r"Spectre|RETBleed|mitigations=off|vulnerab|ref_tracker: memory allocation failure")

EXCERPT_LINES = 40


def since_init(log):
    """The log without the kernel's own start, which is not ours to judge."""
    _, mark, rest = log.partition("Run /init as init process")
    return rest if mark else log


def complaints(log):
    """A list of excerpts, one for each complaint in the log."""
    lines = since_init(log).splitlines()
    found = []
    last = -EXCERPT_LINES
    for number, line in enumerate(lines):
        if not COMPLAINT.search(line) or HARMLESS.search(line):
            continue
        # The lines that follow a report belong to it and often match too.
        if number - last >= EXCERPT_LINES:
            found.append(lines[max(0, number - 2):number + EXCERPT_LINES])
            last = number
    return ["\n".join(excerpt) for excerpt in found]
