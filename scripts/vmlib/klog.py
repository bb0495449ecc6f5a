# SPDX-License-Identifier: GPL-2.0
"""Finds complaints in a kernel's log."""

import itertools
import re

# Messages of the kernel, or of its checkers, about a bug.
COMPLAINT = re.compile("|".join([
    r"\bWARNING:", r"\bBUG[: ]", r"\bOops\b", r"kernel BUG at", r"general protection fault",
    r"[Uu]nable to handle", r"Kernel panic", r"panicked at", r"\bKASAN:", r"\bUBSAN:", r"\bODEBUG:",
    r"INFO: (?:possible|trying|inconsistent|lockdep|rcu|task)", r"suspicious RCU", r"inconsistent lock state",
    r"blocked for more than", r"self-detected stall", r"detected stall", r"soft lockup", r"workqueue lockup",
    r"unregister_netdevice: waiting", r"refcount_t:", r"ref_tracker:", r"scheduling while atomic",
    r"sleeping function called", r"list_(?:add|del) corruption", r"Bad page", r"Bad rss-counter",
    r"page allocation failure", r"new suspected memory leaks", r"unreferenced object", r"pool destroyed with unfree",
]))

# Harmless lines that look similar: with mitigations=off the kernel reports its vulnerabilities; and
# if tests make allocations fail, a tracker reports a failed allocation and then tracks nothing.
HARMLESS = re.compile(r"Spectre|RETBleed|mitigations=off|vulnerab|ref_tracker: memory allocation failure")

# A race within soft-RoCE, which no user of its verbs can prevent (testing.rst describes it): one of
# the two warnings of rxe_sched_task(), or KASAN's report about its first access, if only
# soft-RoCE's own send path called the function. All other consequences count as complaints.
RACE_WARNING = re.compile(r"WARNING: drivers/infiniband/sw/rxe/rxe_task\.c:\d+ at rxe_sched_task\+")
RACE_KASAN = re.compile(r"BUG: KASAN: slab-use-after-free in rxe_sched_task\+")
RACE_CALLERS = ["rxe_xmit_packet", "rxe_requester", "rxe_sender", "do_work"]
# The frames between rxe_sched_task() and rxe_xmit_packet(), if the compiler has not inlined them.
RACE_HAND_OVER = re.compile(r"rxe_(?:resp|comp)_queue_pkt|rxe_rcv(?:_pkt)?")
REPORTERS = re.compile(r"dump_stack_lvl|print_report|kasan_report|kasan_check_range|__kasan_check_read|__asan_load\d")
END_OF_WARNING = re.compile(r"---\[ end trace")
END_OF_KASAN = re.compile(r"\] ={20,}$")
FRAME = re.compile(r"\]\s+(\? )?([\w.]+)\+0x[0-9a-f]+/0x[0-9a-f]+")

# A leak of the iWARP CM (Linux 7.2 and 7.3), which no user of the RDMA CM can prevent (testing.rst
# describes it): the copy of a request's private data.
IWCM_LEAK = ["kmemdup_noprof", "cm_event_handler", "siw_proc_mpareq"]
LEAK = re.compile(r"^unreferenced object", re.MULTILINE)
LEAK_FRAME = re.compile(r"^\s+([\w.]+)\+0x[0-9a-f]+/0x[0-9a-f]+", re.MULTILINE)
LEAK_COUNT = re.compile(r"kmemleak: \d+ new suspected memory leaks")

EXCERPT_LINES = 40


def since_init(log: str) -> str:
    """The log without the boot of the kernel, which is not checked."""
    _, mark, rest = log.partition("Run /init as init process")
    return rest if mark else log


def callers(report: list[str]) -> list[str]:
    """The functions in a report's call trace of which the unwinder is certain, innermost first."""
    _, _, trace = "\n".join(report).partition("<TASK>")
    trace, _, _ = trace.partition("</TASK>")
    return [name for unsure, name in FRAME.findall(trace) if not unsure]


def callers_of_race(report: list[str]) -> list[str]:
    """The callers of rxe_sched_task() in a report, from rxe_xmit_packet() on if it is one of them."""
    names = callers(report)
    if RACE_KASAN.search(report[0]):
        names = list(itertools.dropwhile(REPORTERS.fullmatch, names))
        if names[:1] == ["rxe_sched_task"]:
            names = names[1:]
    return list(itertools.dropwhile(RACE_HAND_OVER.fullmatch, names))


def is_race(report: list[str]) -> bool:
    """Whether a report, up to its end, is about soft-RoCE's race, and contains no other report."""
    has_another = any(COMPLAINT.search(line) for line in report[1:])
    return callers_of_race(report)[:len(RACE_CALLERS)] == RACE_CALLERS and not has_another


def end_of_race(line: str) -> re.Pattern[str] | None:
    """The end of the report that starts with this line, if it looks like soft-RoCE's race."""
    if RACE_WARNING.search(line):
        return END_OF_WARNING
    return END_OF_KASAN if RACE_KASAN.search(line) else None


def without_races(lines: list[str]) -> tuple[list[str], int]:
    """The lines without the reports of soft-RoCE's race, and the number of these reports."""
    kept, races = [], 0
    at = 0
    while at < len(lines):
        if mark := end_of_race(lines[at]):
            end = next((n for n in range(at, len(lines)) if mark.search(lines[n])), None)
            if end is not None and is_race(lines[at:end]):
                races += 1
                at = end + 1
                continue
        kept.append(lines[at])
        at += 1
    return kept, races


def races_of_soft_roce(log: str) -> int:
    """How often the log reports soft-RoCE's race, which is no complaint."""
    return without_races(since_init(log).splitlines())[1]


def leaks(text: str) -> tuple[list[str], int]:
    """The reports of kmemleak: those that count as complaints, and the number of leaks of the iWARP CM."""
    reports = [f"unreferenced object{part}" for part in LEAK.split(text)[1:]]

    def is_known(report: str) -> bool:
        frames = [name for name in LEAK_FRAME.findall(report) if name in IWCM_LEAK]
        return frames == IWCM_LEAK
    judged = [report for report in reports if not is_known(report)]
    return judged, len(reports) - len(judged)


def complaints(log: str, leaks_are_known: bool = False) -> list[str]:
    """A list of excerpts, one for each complaint in the log. With `leaks_are_known`, reports of kmemleak were
    already checked."""
    lines, _ = without_races(since_init(log).splitlines())
    if leaks_are_known:
        lines = [line for line in lines if not LEAK_COUNT.search(line)]
    found: list[list[str]] = []
    last = -EXCERPT_LINES
    for number, line in enumerate(lines):
        if not COMPLAINT.search(line) or HARMLESS.search(line):
            continue
        # The lines after the first line of a report belong to it and often match, too.
        if number - last >= EXCERPT_LINES:
            found.append(lines[max(0, number - 2):number + EXCERPT_LINES])
            last = number
    return ["\n".join(excerpt) for excerpt in found]
