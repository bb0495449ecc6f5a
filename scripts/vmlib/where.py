# SPDX-License-Identifier: GPL-2.0
"""`scripts/bench where`: the instructions of each function while bytes move."""

import collections
import functools

from .bench import Bench
from .measuring import KIB, MIB, MODES, Servers, heading
from .profile import MODULE, Functions, by_function, counted, readable
from .setup import say

# Virtual seconds of one measurement.
SECONDS = 4
# The functions that are shown, of all owners and of the module.
SHOWN, SHOWN_OF_OURS = 25, 15


def table(functions: Functions, kib: float) -> None:
    """The instructions per KiB of each owner, the functions that execute the most, and those of the module."""
    owners: collections.Counter[str] = collections.Counter()
    for (_, owner), count in functions.items():
        owners[owner] += count
    total = owners.total()
    print(f"    {total / kib:.0f} instructions per KiB: "
          + ", ".join(f"{owner} {count / kib:.1f} ({100 * count / total:.1f}%)"
                      for owner, count in owners.most_common(8)))
    ours: Functions = collections.Counter({key: count for key, count in functions.items() if key[1] == MODULE})
    for most in (functions.most_common(SHOWN), ours.most_common(SHOWN_OF_OURS)):
        for ((_, owner), count), name in zip(most, readable([name for (name, _), _ in most]), strict=True):
            print(f"    {count / kib:8.1f} {100 * count / total:6.1f}%  {owner:<14}{name[:110]}")


def where(bench: Bench) -> None:
    """Each way with messages of a MiB, sender and receiver."""
    with Servers(bench) as servers:
        load = f"bw {MIB} --seconds {SECONDS}"
        ways = {
            "TCP": functools.partial(servers.measure, "tcp", "bw", load)} | {
            name: functools.partial(servers.measure, "sdp", "bw", f"{load} --peer-mode {there}", here)
            for name, (here, there) in MODES.items()}
        for name, measure in ways.items():
            say(f"  .. counting {name}")
            rate, blocks = counted(bench, measure)
            heading(f"{name}, {MIB} bytes at a time: {rate:.0f} MB per second of the machines' clocks")
            for side, vm, counts in zip(("sender", "receiver"), bench.vms, blocks, strict=True):
                print(f"  {side}")
                table(by_function(vm, counts), rate * 1e6 * SECONDS / KIB)
