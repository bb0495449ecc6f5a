# SPDX-License-Identifier: GPL-2.0
"""Memory that is not there: every allocation of the module may fail.

The debug kernel's fault injection fails those that have the module in their
call chain, also what the RDMA core and the provider allocate on its behalf. A
connection may then end with an error, but not with a wrong byte, and nothing
may hang or leak: the suite looks at the kernel's log and for leaks afterwards.
"""

import re

from vmlib.bench import expect, test

from vmtests.peer import transfer_works

DEBUGFS = "/sys/kernel/debug"


def inject(vm, kind, percent):
    """Has so many of the module's allocations of a kind fail; 0 ends it."""
    vm.check(f"""set -e
cd {DEBUGFS}/{kind}
start=$(cat /sys/module/ib_sdp/sections/.text)
size=$(awk '$1 == "ib_sdp" {{ print $2 }}' /proc/modules)
echo $start >require-start
printf '0x%x' $(($start + $size)) >require-end
echo 32 >stacktrace-depth
echo 0 >verbose
echo N >ignore-gfp-wait
echo 1 >interval
echo -1 >times
[ ! -e min-order ] || echo 0 >min-order
echo {percent} >probability""")


def noticed(bench):
    """What the module says of memory that it did not get."""
    return sum(count for vm in bench.vms for name, count in bench.stats(vm).items()
               if name in ("no_send_memory", "no_receive_memory", "refused_no_memory", "connect_failed"))


def rounds_with_failures(bench, kind, percent, port, rounds):
    """Streams between the machines while both lack memory; how often the module noticed."""
    before = noticed(bench)
    for vm in bench.vms:
        inject(vm, kind, percent)
    for number in range(rounds):
        server = bench.stream(bench.b, "listen", port + number, 2, bench.amount(1 << 20))
        client = bench.stream(bench.a, "connect", port + number, 2, bench.amount(1 << 20))
        status = bench.finish(client, 60)
        if status != 0:
            # Its peer may wait for connections that never come.
            server.kill()
        bench.finish(server, 60)
        for job in (client, server):
            expect(not re.search(r", [1-9]\d* wrong", job.output), f"{job.vm.name}: {job.output}")
    for vm in bench.vms:
        inject(vm, kind, 0)
    expect(noticed(bench) > before, "the module lacked nothing: was there a fault at all?")


@test(kinds=("debug",))
def slab_allocations_fail(bench):
    rounds_with_failures(bench, "failslab", 3, 7500, 12)
    transfer_works(bench, 7520)


@test(kinds=("debug",))
def page_allocations_fail(bench):
    """Those of a connection that lives are tried again: it gets through."""
    rounds_with_failures(bench, "fail_page_alloc", 10, 7530, 8)
    transfer_works(bench, 7550)
