# SPDX-License-Identifier: GPL-2.0
"""What the module passes to the adapter: arguments of the provider's functions."""

import collections
import re

from vmlib.bench import Bench, expect, test, wait_for
from vmtests.tracing import TRACING, buffers

PROBE = "sdp_test/create_cq"


# The debug kernel has no probe events.
@test(machines=1, kinds=("stock",))
def completion_vectors(bench: Bench) -> None:
    """Completion queues use the adapter's completion vectors in turn."""
    vm = bench.a
    with buffers(vm):
        # comp_vector is the second member of struct ib_cq_init_attr.
        vm.check(f"echo 'p:{PROBE} rxe_create_cq vector=+4(%si):u32' >{TRACING}/kprobe_events")
        try:
            vm.check(f"echo >{TRACING}/trace; echo 1 >{TRACING}/events/{PROBE}/enable; echo 1 >{TRACING}/tracing_on")
            connections = 4
            command = f"exec selftest stream --family sdp --conns {connections} --bytes 1000"
            jobs = [vm.spawn(f"{command} --listen {bench.address(vm)}:7650")]
            # A refused connect also has a completion queue.
            wait_for(lambda: vm.check("sdpctl ss -lH --sport 7650"), bench.limit(20), "nobody listens")
            jobs.append(vm.spawn(f"{command} --connect {bench.address(vm)}:7650"))
            for job in jobs:
                bench.succeed(job, 60)
            vm.check(f"echo 0 >{TRACING}/tracing_on")
            trace = vm.check(f"cat {TRACING}/trace")
        finally:
            vm.run(f"echo 0 >{TRACING}/events/{PROBE}/enable; echo >{TRACING}/kprobe_events")
    used = collections.Counter(int(n) for n in re.findall(r" vector=(\d+)", trace))
    processors = int(vm.check("nproc"))
    expect(processors > 1 and sum(used.values()) == 2 * connections, f"{processors} processors, {used}:\n{trace}")
    each = 2 * connections // processors
    expect(used == dict.fromkeys(range(processors), each), f"queues by vector: {dict(used)}")
    wait_for(lambda: not vm.check("sdpctl ss -aH"), bench.limit(30), "connections stay")
