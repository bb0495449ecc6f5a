# SPDX-License-Identifier: GPL-2.0
"""`scripts/bench instructions`: the cost of bytes, requests and pages, in instructions instead of time.

QEMU counts the instructions that the machines execute (tools/profile), and the machines' clocks count them too
(icount, one nanosecond each). So the figures do not depend on the emulator's speed.
"""

import functools
import re
import statistics
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from .bench import Bench
from .machine import Vm, VmError
from .measuring import KIB, MIB, MODES, Figure, Servers, heading
from .profile import MODULE, counted, counted_of_more, of_module
from .rates import QperfServer, qperf
from .setup import say

# Virtual seconds of one measurement.
SECONDS = 4
TRACING = "/sys/kernel/tracing"
PAGES = 64
REQUESTS = (1, 64, KIB, 4 * KIB)
# The round trip of a byte varies by a tenth between measurements, because the processors' work
# interleaves differently.
ROUNDS_OF_STATISTICS = 9
# The traced calls: the call at the beginning of a span and its caller, and the same for the end. Both spans are those
# for which the lock of the address space is held. (Functions in Rust cannot be traced, but the C functions that they
# call can. The compiler may inline take() in its only caller.)
CALLS = ("down_read", "down_read_trylock", "up_read")
LOCK = r"down_read(_trylock)? <-rust_helper_mmap_read"
SPANS = {"referencing and protecting": (LOCK, r"up_read <-\S+(8snapshot\S+4take|13take_snapshot)"),
         "restoring": (LOCK, r"up_read <-\S+8snapshot\S+7restore")}


class Cost(NamedTuple):
    """Instructions of a machine per byte, or per request."""

    all: float
    own: float


# The costs of each machine.
Costs: TypeAlias = list[Cost]


def per_unit(bench: Bench, work: Callable[[int], float]) -> Costs:
    """Instructions for one more unit of what `work` does (`counted_of_more()`)."""
    units, more = counted_of_more(bench, work)
    return [Cost(blocks.total() / units, of_module(vm, blocks) / units)
            for vm, blocks in zip(bench.vms, more, strict=True)]


def bytes_moved(bench: Bench) -> int:
    return sum(bench.stats(bench.a)[name] for name in ("tx_bytes", "tx_zcopy_bytes"))


def per_byte(bench: Bench, rounds: int) -> None:
    """Each way, verbs alone, and a copy; then the part of the module."""
    heading(f"Instructions per byte at 1 MiB; median of {rounds} (least to most)")
    with Servers(bench) as servers, QperfServer(bench.b):
        def by(way: str) -> Costs:
            def work(seconds: int) -> int:
                before = bytes_moved(bench)
                load = f"bw {MIB} --seconds {seconds} --peer-mode {MODES[way][1]}"
                servers.measure("sdp", "bw", load, MODES[way][0])
                return bytes_moved(bench) - before
            return per_unit(bench, work)

        def raw(test: str, size: int, source: int) -> Costs:
            def work(seconds: int) -> float:
                rate = qperf(bench.a, bench.address(bench.b), test, size, seconds)
                return rate * 1e6 * seconds
            count = per_unit(bench, work)
            # The bytes of a Read come from the server.
            return [count[source], count[1 - source]]
        measurements: Mapping[str, Callable[[], Costs]] = {
            **{way: functools.partial(by, way) for way in MODES},
            "raw Send, 64 KiB": functools.partial(raw, "rc_bw", 64 * KIB, 0),
            "raw Read": functools.partial(raw, "rc_rdma_read_bw", MIB, 1),
            "raw Write": functools.partial(raw, "rc_rdma_write_bw", MIB, 0)}
        measured: list[dict[str, Costs]] = []
        for number in range(rounds):
            measured.append({})
            for name, measure in measurements.items():
                try:
                    sender, receiver = measured[-1][name] = measure()
                except VmError as error:
                    # A module that is older than this script may not have all ways.
                    say(f"  .. round {number + 1} of {rounds}: {name}: {error}")
                    continue
                say(f"  .. round {number + 1} of {rounds}: {name} {sender.all:.2f}, {receiver.all:.2f}")
    names = [name for name in measurements if all(name in one for one in measured)]
    ways = [name for name in names if name in MODES]
    for title, shown, field, scale in (("all that the machine does", names, "all", 1),
                                       (f"{MODULE} alone, per KiB", ways, "own", KIB)):
        print(f"  {title:<34}{'sender':>24}{'receiver':>26}")
        for name in shown:
            sides = [Figure([getattr(one[name][end], field) * scale for one in measured]) for end in (0, 1)]
            print(f"    {name:<22}{sides[0]!s:>34}{sides[1]!s:>26}", flush=True)
    size = 256 * MIB
    bench.a.check("dd if=/dev/zero of=/tmp/zeroes bs=1M count=16")
    _, count = counted(bench, lambda: bench.a.check(
        f"for i in $(seq {size // (16 * MIB)}); do dd if=/tmp/zeroes of=/dev/null bs=1M; done 2>/dev/null"))
    bench.a.check("rm /tmp/zeroes")
    print(f"  one copy: read() of a file in memory{count[0].total() / size:>8.2f}")


def requests(servers: Servers, transport: str, size: int, seconds: int) -> float:
    """Sends requests for a time, each after the answer to the one before; returns their number."""
    one_way = servers.measure(transport, "lat", f"lat {size} --seconds {seconds}")
    return seconds * 1e6 / (2 * one_way)


def per_request(bench: Bench, rounds: int) -> None:
    """Small requests and their answers over TCP and over SDP."""
    heading(f"Instructions per request and answer of so many bytes; median of {rounds} (least to most)")
    with Servers(bench) as servers:
        def by(transport: str, size: int) -> Costs:
            return per_unit(bench, functools.partial(requests, servers, transport, size))
        print(f"  {'bytes':>7}{'':<9}{'client':>26}{'server':>26}{f'{MODULE} alone':>20}")
        for size in REQUESTS:
            for transport in ("tcp", "sdp"):
                got = [by(transport, size) for _ in range(rounds)]
                sides = ""
                for end in (0, 1):
                    counts = [one[end].all for one in got]
                    sides += f"{f'{statistics.median(counts):.0f} ({min(counts):.0f} to {max(counts):.0f})':>26}"
                own = ", ".join(f"{statistics.median(one[end].own for one in got):.0f}" for end in (0, 1))
                print(f"  {size:>7}  {transport.upper():<7}{sides}{own if transport == 'sdp' else '':>20}", flush=True)


def traced(vm: Vm, work: Callable[[], object]) -> dict[str, list[int]]:
    """Calls `work` while calls are traced; returns the length of each span, in instructions."""
    vm.check(f"[ -d {TRACING}/events ] || mount -t tracefs tracefs {TRACING}; cd {TRACING} && "
             f"echo x86-tsc >trace_clock && echo {' '.join(CALLS)} >set_ftrace_filter && echo function >current_tracer")
    work()
    trace = vm.check(f"cd {TRACING} && echo 0 >tracing_on && cat trace && echo nop >current_tracer && "
                     "echo >set_ftrace_filter && echo 1 >tracing_on")
    spans: dict[str, list[int]] = {name: [] for name in SPANS}
    begun: dict[str, int] = {}
    for clock, call in re.findall(r" (\d+): (\w+ <-\S+)", trace):
        for name, (begin, end) in SPANS.items():
            if re.match(begin, call):
                begun[name] = int(clock)
            elif name in begun and re.match(end, call):
                spans[name].append(int(clock) - begun.pop(name))
    return spans


def per_page(bench: Bench) -> None:
    """The cost of taking pages for a send, and of restoring them."""
    heading(f"Instructions per page, of {PAGES} pages; median (least to most), with interrupts")
    with Servers(bench) as servers:
        spans = traced(bench.a, lambda: servers.measure(
            "sdp", "bw", f"bw {PAGES * 4 * KIB} --seconds {SECONDS} --peer-mode sync", "async"))
    for name, got in spans.items():
        pages = [span / PAGES for span in got]
        if not pages:
            raise VmError(f"{name}: no such calls were traced")
        print(f"  {name:<28}{statistics.median(pages):8.0f} ({min(pages):.0f} to {max(pages):.0f}, "
              f"{len(pages)} times)")


def statistics_cost(bench: Bench) -> None:
    """The work that includes counting, with or without counters: a message, and the round trip of a byte."""
    heading("Instructions of both machines")
    peer, seconds = bench.address(bench.b), SECONDS // 2
    with QperfServer(bench.b):
        for title, test, size in (("a message of 64 KiB", "sdp_bw", 64 * KIB), ("a byte to and fro", "sdp_lat", 1)):
            got = []
            for _ in range(ROUNDS_OF_STATISTICS):
                figure, count = counted(bench, functools.partial(qperf, bench.a, peer, test, size, seconds))
                times = figure * 1e6 * seconds / size if test == "sdp_bw" else seconds * 1e6 / (2 * figure)
                got.append(sum(blocks.total() for blocks in count) / times)
            print(f"  {title:<24}{statistics.median(got):10.0f} ({min(got):.0f} to {max(got):.0f})", flush=True)


def instructions(bench: Bench, rounds: int) -> None:
    per_byte(bench, rounds)
    per_request(bench, rounds)
    per_page(bench)
