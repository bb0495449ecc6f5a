# SPDX-License-Identifier: GPL-2.0
"""Failing allocations: each allocation of the module may fail.

The debug kernel's fault injection fails allocations with the module in their call chain, including those that
the RDMA core and the provider make on its behalf. A connection may then end with an error, but not with a wrong
byte, and nothing may hang or leak: afterwards the test run checks the kernel log and looks for leaks.
"""

import contextlib
import re
from collections.abc import Iterator

from vmlib.bench import Bench, expect, test
from vmlib.machine import Vm
from vmtests.peer import transfer_works

DEBUGFS = "/sys/kernel/debug"


# Maximum number of failures; the kernel counts down from here.
MANY = 1_000_000_000


def inject(vm: Vm, kind: str, percent: int) -> None:
    """Makes this share of the module's allocations of a kind fail. 0 ends it."""
    # Not in the shell: its numbers are signed.
    start = int(vm.check("cat /sys/module/ib_sdp/sections/.text"), 16)
    size = int(vm.check("awk '$1 == \"ib_sdp\" { print $2 }' /proc/modules"))
    vm.check(f"""set -e
cd {DEBUGFS}/{kind}
echo {start:#x} >require-start
echo {start + size:#x} >require-end
echo 32 >stacktrace-depth
echo 0 >verbose
echo N >ignore-gfp-wait
echo 1 >interval
[ ! -e min-order ] || echo 0 >min-order
[ {percent} = 0 ] || echo {MANY} >times
echo {percent} >probability""")


@contextlib.contextmanager
def failures(vms: list[Vm], kind: str, percent: int) -> Iterator[None]:
    """For the length of the block, this share of the module's allocations of a kind fails in these machines. At
    least one must fail."""
    try:
        for vm in vms:
            inject(vm, kind, percent)
        yield
    finally:
        for vm in vms:
            inject(vm, kind, 0)
    failed = sum(MANY - int(vm.check(f"cat {DEBUGFS}/{kind}/times")) for vm in vms)
    print(f"# {failed} allocations failed ({kind})", flush=True)
    expect(failed > 0, "no allocation failed: the test tried nothing")


def rounds_with_failures(bench: Bench, kind: str, percent: int, port: int, rounds: int) -> None:
    """Streams between the machines while allocations fail in both: a stream may end, but not with a wrong byte."""
    with failures(bench.vms, kind, percent):
        for number in range(rounds):
            server = bench.stream(bench.b, "listen", port + number, 2, bench.amount(1 << 20))
            client = bench.stream(bench.a, "connect", port + number, 2, bench.amount(1 << 20))
            status = bench.finish(client, 60)
            if status != 0:
                # The peer may wait for connections that never come.
                server.kill()
            bench.finish(server, 60)
            for job in (client, server):
                expect(not re.search(r", [1-9]\d* wrong", job.output), f"{job.vm.name}: {job.output}")


@test(kinds=("debug",))
def slab_allocations_fail(bench: Bench) -> None:
    rounds_with_failures(bench, "failslab", 3, 7500, 12)
    transfer_works(bench, 7520)


@test(kinds=("debug",))
def page_allocations_fail(bench: Bench) -> None:
    """Page allocations of a live connection are retried: the connection succeeds."""
    rounds_with_failures(bench, "fail_page_alloc", 10, 7530, 8)
    transfer_works(bench, 7550)


@test(kinds=("debug",))
def ids_cannot_be_had(bench: Bench) -> None:
    """A connection whose id cannot be allocated leaves nothing behind, according to KASAN and the socket table."""
    # In a namespace without an RDMA device: each connect fails at once, with or without an id.
    with failures([bench.a], "failslab", 30):
        result = bench.a.run("unshare -n sh -c 'ip link set lo up; for i in $(seq 40); do "
                             "selftest stream --family sdp --connect 127.0.0.1:9 --conns 1 --bytes 1; done; "
                             f"echo 0 >{DEBUGFS}/failslab/probability; cat /proc/net/sdp' 2>&1", bench.limit(60))
    _, _, sockets = result.output.partition("uid inode\n")
    expect(not sockets.strip(), f"sockets that nobody has: {sockets}")
