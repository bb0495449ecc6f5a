# SPDX-License-Identifier: GPL-2.0
"""`scripts/bench locks`: how long threads wait for the module's locks that the whole machine shares.

The kernel's trace events lock:contention_begin and contention_end report each wait.
"""

import collections
import re
from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar

from .bench import Bench
from .machine import Vm, VmError
from .measuring import KIB, MIB, MODES, Servers, heading
from .setup import say

T = TypeVar("T")
# By the name of a lock: the number of waits, and their total time in seconds.
Waits: TypeAlias = dict[str, tuple[int, float]]

SECONDS = 4
THREADS = 8
TRACING = "/sys/kernel/tracing"
# The names in the source, which are parts of the symbols.
LOCKS = ("TURNS", "FOLIO_REFS", "WATCHES")
# A lock and the data that it protects are adjacent; other data follows the last lock.
LOCK_BYTES = 64


def addresses(vm: Vm) -> dict[str, int]:
    """The addresses of the locks: the first byte and the name of each."""
    symbols = vm.check("grep -w ib_sdp /proc/kallsyms").splitlines()
    found = {}
    for line in symbols:
        address, _, symbol, _ = line.split()
        for name in LOCKS:
            if re.search(rf"\d{name}$", symbol):
                found[name] = int(address, 16)
    if missing := set(LOCKS) - set(found):
        raise VmError(f"the module has no lock {', '.join(sorted(missing))}")
    return found


def waits(trace: str, places: Mapping[str, int]) -> Waits:
    """The waits for each lock, from the text of a trace."""
    count: collections.Counter[str] = collections.Counter()
    seconds: collections.defaultdict[str, float] = collections.defaultdict(float)
    began: dict[tuple[str, str], float] = {}
    for task, now, what, lock in re.findall(
            r"^\s*(.+?-\d+)\s+\[.* ([\d.]+): (contention_begin|contention_end): 0?x?([0-9a-f]+) ",
            trace, re.MULTILINE):
        below = [(address, name) for name, address in places.items()
                 if address <= int(lock, 16) < address + LOCK_BYTES]
        if not below:
            continue
        name = max(below)[1]
        if what == "contention_begin":
            began.setdefault((task, name), float(now))
        elif (task, name) in began:
            count[name] += 1
            seconds[name] += float(now) - began.pop((task, name))
    return {name: (count[name], seconds[name]) for name in places}


def traced(vm: Vm, places: Mapping[str, int], measure: Callable[[], T]) -> tuple[T, Waits]:
    """The result of `measure`, and the waits for each lock meanwhile."""
    least, most = min(places.values()), max(places.values()) + LOCK_BYTES
    wanted = f"lock_addr >= {least:#x} && lock_addr < {most:#x}"
    vm.check(f"mountpoint -q {TRACING} || mount -t tracefs tracefs {TRACING}; cd {TRACING} && "
             "echo 20000 >buffer_size_kb && echo 0 >options/hash-ptr && echo >trace && for e in begin end; do"
             f" echo '{wanted}' >events/lock/contention_$e/filter && echo 1 >events/lock/contention_$e/enable; done")
    result = measure()
    trace = vm.check(f"cd {TRACING} && echo 0 >events/lock/enable && grep contention_ trace; echo >trace")
    return result, waits(trace, places)


def locks(bench: Bench) -> None:
    """Sends and receives of eight threads, of one program and of eight programs."""
    with Servers(bench) as servers:
        places = [addresses(vm) for vm in bench.vms]
        for size in (64 * KIB, MIB):
            for whose, load in (("one program", f"bw {size} --streams {THREADS}"),
                                (f"{THREADS} programs", f"clients {THREADS} bw {size}")):
                say(f"  .. {THREADS} threads of {whose}, {size} bytes")

                def measure(load: str = load) -> float:
                    here, there = MODES["AZ-SDP"]
                    return servers.measure(
                        "sdp", "bw", f"{load} --overwrite 1 --seconds {SECONDS} --peer-mode {there}", here)
                (rate, receiving), sending = traced(
                    bench.a, places[0], lambda: traced(bench.b, places[1], measure))
                heading(f"AZ-SDP, {THREADS} threads of {whose}, {size} bytes at a time: {rate:.0f} MB/s, {SECONDS} s")
                for side, waited in (("sender", sending), ("receiver", receiving)):
                    for name, (count, seconds) in waited.items():
                        print(f"  {side:<10}{name:<12}{count:>8} waits, {1000 * seconds:>9.1f} ms in all:"
                              f" {100 * seconds / SECONDS / THREADS:.2f}% of the threads' time", flush=True)
