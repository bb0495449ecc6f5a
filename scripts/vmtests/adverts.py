# SPDX-License-Identifier: GPL-2.0
"""Asynchronous sends and receives with slow links, swapping, merging or disabled rules."""

import contextlib
from collections.abc import Iterator

from vmlib.bench import Bench, Failure, expect, test
from vmlib.machine import Vm


@contextlib.contextmanager
def slow(bench: Bench) -> Iterator[None]:
    """A slow link with the test server at its other end."""
    for vm in bench.vms:
        vm.check("tc qdisc add dev eth0 root netem delay 15ms")
    try:
        with bench.selftest_server():
            yield
    finally:
        # Packets in the queue are lost when the queue is removed.
        for vm in bench.vms:
            bench.settle(vm)
        for vm in bench.vms:
            vm.run("tc qdisc del dev eth0 root")


@test(machines=2, core=("stock",))
def slow_link(bench: Bench) -> None:
    """On a slow link, programs that touch memory returned by recv() wait for its bytes, and receives of programs
    that have something else to do return early."""
    with slow(bench):
        bench.selftest_passes(bench.selftest("azrecv", bench.b), 300)
        stats = bench.stats(bench.a)
        expect(stats["absent_waits"] >= 16 // bench.slow, f"nobody has waited: {stats['absent_waits']}")
        # The time to take pages away must be short beside the delay, on a busy host, too.
        for vm in bench.vms:
            vm.check("tc qdisc change dev eth0 root netem delay 50ms")
        command = bench.selftest("azwhen/comes_back_in_time azwhen/header_and_body_in_time", bench.b)
        job = bench.selftest_passes(command, 90)
        if "# SKIP" in job.output:
            job = bench.selftest_passes(command, 90)
        expect("# SKIP" not in job.output, job.output)


@contextlib.contextmanager
def swap_and_merging(vm: Vm) -> Iterator[None]:
    """Pages can be swapped out, and equal pages are merged all the time where programs allow it."""
    vm.check("modprobe zram && echo 256M >/sys/block/zram0/disksize && mkswap /dev/zram0 && swapon /dev/zram0")
    vm.check("cd /sys/kernel/mm/ksm && echo 2000 >pages_to_scan && echo 20 >sleep_millisecs && echo 1 >run")
    try:
        yield
    finally:
        vm.run("cd /sys/kernel/mm/ksm && echo 2 >run && echo 0 >run")
        vm.run("swapoff /dev/zram0 && rmmod zram")


AT_RANDOM = ("azabuse/small_pages_at_random", "azabuse/huge_pages_at_random", "azrecv/small_buffers_at_random",
             "azrecv/huge_buffers_at_random")


@test(machines=1, kinds=("stock",))
def swapped_and_merged(bench: Bench) -> None:
    """The random tests again, where MADV_PAGEOUT and MADV_MERGEABLE have an effect."""
    vm = bench.a

    def growth() -> tuple[int, int]:
        out, back = (int(vm.check(f"sed -n 's/^pswp{way} //p' /proc/vmstat")) for way in ("out", "in"))
        return out, back
    with swap_and_merging(vm):
        before, scans = growth(), int(vm.check("cat /sys/kernel/mm/ksm/full_scans"))
        bench.selftest_passes(bench.selftest(" ".join(AT_RANDOM)), 200)
        out, back = (now - then for now, then in zip(growth(), before, strict=True))
        expect(out >= 100 and back >= 100, f"{out} pages were swapped out and {back} in")
        scans = int(vm.check("cat /sys/kernel/mm/ksm/full_scans")) - scans
        expect(scans >= 10, f"KSM has scanned {scans} times")


# Bits of the parameter sdp_break, and the tests that must detect each.
BROKEN = {
    1: ("azabuse/written_to_by_others_in_flight", "azabuse/small_pages_at_random", "azabuse/huge_pages_at_random"),
    2: ("azabuse/child_keeps_a_page", "azabuse/child_keeps_a_huge_page"),
    4: ("azabuse/read_only_in_flight",),
    8: ("azrecv/read_at_once", "azrecv/read_by_many"),
    16: ("azrecv/moved_at_once", "azrecv/forked_at_once"),
}
# Bits that sleep between the steps of a snapshot, or release pages late. They break nothing by
# themselves but expose broken rules.
APART = 256
BROKEN_APART = {
    128 | APART: ("azabuse/sent_by_many_while_written",),
}
LATE = 64
BROKEN_LATE = {
    32 | LATE: ("azrecv/received_into_twice",),
}


# A broken rule shows only when two events coincide, which does not happen in each run. The rarest
# one is detected in 9 of 20 runs, so 12 runs miss it once in 1300 tests.
TRIES = 12


def is_seen(bench: Bench, bit: int, command: str) -> None:
    bench.unload(bench.a)
    bench.a.check(f"modprobe ib_sdp sdp_break={bit}")
    for _ in range(TRIES):
        job = bench.a.spawn(command)
        status = bench.finish(job, 60)
        seen = [line for line in job.lines if line.startswith("not ok")]
        expect(all("hangs" not in line for line in seen), "\n".join(seen))
        if status != 0 and seen:
            return
    raise Failure(f"nobody sees that rule {bit} is broken:\n" + "\n".join(job.lines))


def is_seen_with(bench: Bench, bits: int, slow: int, command: str) -> None:
    """is_seen() for a rule whose absence shows only with a delay. The delay alone breaks nothing."""
    is_seen(bench, bits, command)
    bench.unload(bench.a)
    bench.a.check(f"modprobe ib_sdp sdp_break={slow}")
    bench.selftest_passes(command, 60)


@test(machines=1, kinds=("debug",), breaks=True)
def rules_are_needed(bench: Bench) -> None:
    """Tests of page protection fail if one of its rules is switched off."""
    for bit, names in BROKEN.items():
        is_seen(bench, bit, bench.selftest(" ".join(names), whole=True))
    for bits, names in BROKEN_APART.items():
        is_seen_with(bench, bits, APART, bench.selftest(" ".join(names), whole=True))
    bench.unload(bench.a)
    bench.a.check("modprobe ib_sdp")


@test(machines=2, kinds=("debug",), breaks=True)
def rules_are_needed_where_it_is_slow(bench: Bench) -> None:
    """The same for a rule that matters only while bytes are in flight."""
    with slow(bench):
        for bit, names in BROKEN_LATE.items():
            is_seen_with(bench, bit, LATE, bench.selftest(" ".join(names), bench.b, whole=True))
    bench.unload(bench.a)
    bench.a.check("modprobe ib_sdp")
