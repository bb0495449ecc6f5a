# SPDX-License-Identifier: GPL-2.0
"""`scripts/bench where`: the instructions of each function while bytes move."""

import collections
import functools
import itertools

from .bench import Bench
from .instructions import requests
from .measuring import KIB, MIB, MODES, Servers, heading
from .profile import MODULE, Functions, by_function, counted, counted_of_more, readable
from .setup import say

# Virtual seconds of one measurement.
SECONDS = 4
# The connections of one measurement, made one after the other.
CONNECTIONS = 200
# Bytes of the requests that are counted.
REQUESTS = (1, 4 * KIB)
# The functions that are shown, of all owners and of the module.
SHOWN, SHOWN_OF_OURS = 25, 15


def table(functions: Functions, units: float, unit: str) -> None:
    """The instructions per unit of each owner, the functions that execute the most, and those of the module."""
    owners: collections.Counter[str] = collections.Counter()
    for (_, owner), count in functions.items():
        owners[owner] += count
    total = owners.total()
    print(f"    {total / units:.0f} instructions per {unit}: "
          + ", ".join(f"{owner} {count / units:.1f} ({100 * count / total:.1f}%)"
                      for owner, count in owners.most_common(8)))
    ours: Functions = collections.Counter({key: count for key, count in functions.items() if key[1] == MODULE})
    for most in (functions.most_common(SHOWN), ours.most_common(SHOWN_OF_OURS)):
        for ((_, owner), count), name in zip(most, readable([name for (name, _), _ in most]), strict=True):
            print(f"    {count / units:8.1f} {100 * count / total:6.1f}%  {owner:<14}{name[:110]}")


def where(bench: Bench) -> None:
    """Requests, client and server; each way with messages of a MiB, sender and receiver; then connections, client
    and server."""
    with Servers(bench) as servers:
        for size, transport in itertools.product(REQUESTS, ("tcp", "sdp")):
            say(f"  .. counting requests of {size} bytes by {transport.upper()}")
            count, blocks = counted_of_more(bench, functools.partial(requests, servers, transport, size))
            heading(f"{transport.upper()}, a request and its answer of {size} bytes each")
            for side, vm, counts in zip(("client", "server"), bench.vms, blocks, strict=True):
                print(f"  {side}")
                table(by_function(vm, counts), count, "request")
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
                table(by_function(vm, counts), rate * 1e6 * SECONDS / KIB, "KiB")
        for transport in ("tcp", "sdp"):
            say(f"  .. counting connections by {transport.upper()}")
            time, blocks = counted(bench, functools.partial(
                servers.measure, transport, "session", f"connect {CONNECTIONS}"))
            heading(f"{transport.upper()}, {CONNECTIONS} connections: {time:.0f} us each, from connect() to the end")
            for side, vm, counts in zip(("client", "server"), bench.vms, blocks, strict=True):
                print(f"  {side}")
                table(by_function(vm, counts), CONNECTIONS, "connection")
