# SPDX-License-Identifier: GPL-2.0
"""Trace events agree with the counters; disabled events are not recorded."""

import collections
import contextlib
import itertools
import re
from collections.abc import Iterator
from typing import TypeAlias

from vmlib.bench import BY_ADVERTS, Bench, expect, test, wait_for
from vmlib.machine import Vm

# The name of an event, and its fields.
Event: TypeAlias = tuple[str, dict[str, str]]

TRACING = "/sys/kernel/tracing"
LINE = re.compile(r"\s(sdp_[a-z_]+): (.*)$")
BUFFER_KIB = 16384


@contextlib.contextmanager
def buffers(vm: Vm) -> Iterator[None]:
    """Makes the trace buffers large enough for a transfer, and frees them afterwards."""
    vm.check(f"[ -e {TRACING}/events ] || mount -t tracefs tracefs {TRACING}")
    vm.check(f"echo 0 >{TRACING}/tracing_on; echo {BUFFER_KIB} >{TRACING}/buffer_size_kb")
    try:
        yield
    finally:
        vm.run(f"cd {TRACING}; echo 0 >tracing_on; echo 0 >events/ib_sdp/enable; echo >trace; echo 1 >buffer_size_kb")


def switch(vm: Vm, state: int) -> None:
    """Enables (1) or disables (0) all events."""
    vm.check(f"echo {state} >{TRACING}/events/ib_sdp/enable")
    expect(vm.check(f"cat {TRACING}/events/ib_sdp/enable").strip() == str(state), "the events are not switched")


def told(vm: Vm) -> list[Event]:
    """The recorded events, each with its name and its fields as words."""
    lost = vm.check(f"cat {TRACING}/per_cpu/cpu*/stats | grep -E '^(overrun|dropped events)' | grep -vc ': 0$' || true")
    expect(lost.strip() == "0", f"events were lost: {lost}")
    found = (LINE.search(line) for line in vm.check(f"cat {TRACING}/trace").splitlines())
    return [(m[1], dict(word.split("=", 1) for word in m[2].split())) for m in found if m]


def transfer(bench: Bench, port: int, count: int, size: int) -> None:
    vm = bench.a
    command = f"exec selftest stream --family sdp --conns {count} --bytes {size}"
    jobs = [vm.spawn(f"{command} --{role} {bench.address(vm)}:{port}") for role in ("listen", "connect")]
    for job in jobs:
        bench.succeed(job, 120)
    # The last pages are released, and the last states left, some time after the last byte.
    wait_for(lambda: not vm.check("sdpctl ss -aH"), bench.limit(30), "connections stay")


# Waits for absent pages are counted when the transfer ends. A program that starts to wait at that
# moment has an event but is not counted.
MAY_BE_MORE = {"absent_waits": 2}


def sums(events: list[Event]) -> collections.Counter[str]:
    """The sums of the events, by the names of the counters."""
    total: collections.Counter[str] = collections.Counter()
    for name, e in events:
        def number(field: str, e: dict[str, str] = e) -> int:
            return int(e[field])
        if name == "sdp_send":
            total[f"sent_{e['mid']}"] += 1
            total["tx_bytes"] += number("payload")
        elif name == "sdp_receive":
            total[f"received_{e['mid']}"] += 1
        elif name == "sdp_advert_read":
            total["read_done"] += 1
            total["rx_zcopy_bytes + rx_pulled_bytes"] += number("bytes")
        elif name == "sdp_advert_posted":
            total["advert_posted" if e["kind"] == "source" else "sink_advert_sent"] += 1
        elif name == "sdp_advert_completed" and e["kind"] == "source":
            total["advert_consumed"] += 1
            total["tx_zcopy_bytes"] += number("len")
        elif name in ("sdp_advert_completed", "sdp_advert_cancelled") and e["kind"] == "sink":
            total["sink_advert_ended"] += 1
            total["sink_received_bytes"] += number("bytes")
        elif name == "sdp_advert_cancelled":
            total["advert_cancelled + advert_aborted"] += 1
        elif name == "sdp_by_copy":
            total[f"by_copy_{e['reason']}"] += 1
        elif name == "sdp_protect":
            total["snapshot_pages" if e["for"] == "send" else "absent_pages"] += number("pages")
        elif name == "sdp_restore" and e["for"] == "send":
            total["snapshot_freed"] += number("pages")
            total["pages_touched"] += number("touched")
            total["pages_restored"] += number("restored")
        elif name == "sdp_restore":
            total["absent_freed"] += number("pages")
            total["absent_touched"] += number("touched")
        elif name == "sdp_fault" and e["for"] == "receive":
            total["absent_waits"] += 1
    return total


@test(machines=1)
def events(bench: Bench) -> None:
    """Each event occurs as often as its counter says, with correct values. Disabled events do not occur."""
    vm = bench.a
    bench.unload(vm)
    vm.check(f"modprobe ib_sdp {BY_ADVERTS} sdp_recv_early=all")
    try:
        with buffers(vm):
            events_add_up(bench, 2, bench.amount(2 << 20))
    finally:
        bench.unload(vm)
        bench.load(vm)


def events_add_up(bench: Bench, count: int, size: int) -> None:
    vm = bench.a
    switch(vm, 1)
    vm.check(f"echo >{TRACING}/trace; echo 1 >{TRACING}/tracing_on")
    transfer(bench, 7701, count, size)
    vm.check(f"echo 0 >{TRACING}/tracing_on")
    all_told = told(vm)
    stats = bench.stats(vm)
    total = sums(all_told)
    stats["tx_bytes"] -= stats["sink_written_bytes"]
    for name, n in total.items():
        counted = sum(stats[part] for part in name.split(" + "))
        most = counted + MAY_BE_MORE.get(name, 0)
        expect(counted <= n <= most, f"{name}: {n} in the trace, {counted} counted")
    for name in ("sent_Data", "received_Data", "advert_posted", "advert_consumed", "read_done",
                 "snapshot_pages", "snapshot_freed", "sent_DisConn"):
        expect(total[name] > 0, f"{name}: nothing in the trace")
    for name, n in stats.items():
        if name.startswith(("sent_", "received_", "by_copy_", "advert_posted")):
            expect(total[name] == n, f"{name}: {total[name]} in the trace, {n} counted")
    expect_order(all_told, 2 * count)
    switch(vm, 0)
    vm.check(f"echo >{TRACING}/trace; echo 1 >{TRACING}/tracing_on")
    transfer(bench, 7702, 1, size)
    expect(not told(vm), "events that were switched off")


def expect_order(all_told: list[Event], sockets: int) -> None:
    """Messages of a connection are numbered without a gap; each state is followed by the next one."""
    sequences: collections.defaultdict[tuple[str, str], list[int]] = collections.defaultdict(list)
    states: collections.defaultdict[str, list[tuple[str, str]]] = collections.defaultdict(list)
    for name, e in all_told:
        if name in ("sdp_send", "sdp_receive"):
            sequences[e["cookie"], name].append(int(e["mseq"]))
        if name == "sdp_state":
            states[e["cookie"]].append((e["from"], e["to"]))
    expect(len(sequences) == 2 * sockets, f"{len(sequences)} directions")
    for numbers in sequences.values():
        first = numbers[0]
        expect(numbers == list(range(first, first + len(numbers))), numbers)
    up = [moves for moves in states.values() if any(to == "Established" for _, to in moves)]
    expect(len(up) == sockets, states)
    for moves in up:
        expect(moves[-1][1] == "Dead", moves)
        expect(all(one[1] == next_one[0] for one, next_one in itertools.pairwise(moves)), moves)


@test(machines=1, kinds=("stock",))
def unload_while_traced(bench: Bench) -> None:
    """The module can be unloaded while its events are enabled, and is traced after it is loaded again."""
    vm = bench.a
    with buffers(vm):
        switch(vm, 1)
        transfer(bench, 7703, 1, 100000)
        bench.unload(vm)
        expect(not vm.run(f"[ -e {TRACING}/events/ib_sdp ]").ok, "the events have outlived the module")
        bench.load(vm)
        switch(vm, 1)
        vm.check(f"echo >{TRACING}/trace; echo 1 >{TRACING}/tracing_on")
        transfer(bench, 7703, 1, 100000)
        expect(sums(told(vm))["sent_DisConn"] == 2, "no events after the module was loaded anew")
