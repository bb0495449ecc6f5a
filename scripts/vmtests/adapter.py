# SPDX-License-Identifier: GPL-2.0
"""What the module passes to the adapter: arguments of the provider's functions."""

import collections
import contextlib
import re
import shlex
from collections.abc import Iterator

from vmlib.bench import Bench, expect, test, wait_for
from vmlib.machine import Vm
from vmtests.sdpctl import IPPROTO_SDP
from vmtests.tracing import TRACING, buffers

PROBE = "sdp_test/probe"


@contextlib.contextmanager
def probed(vm: Vm, what: str) -> Iterator[None]:
    """Traces the calls of a function during the block: its name, and what to record."""
    with buffers(vm):
        vm.check(f"echo 'p:{PROBE} {what}' >{TRACING}/kprobe_events")
        try:
            vm.check(f"echo >{TRACING}/trace; echo 1 >{TRACING}/events/{PROBE}/enable; echo 1 >{TRACING}/tracing_on")
            yield
        finally:
            vm.run(f"echo 0 >{TRACING}/tracing_on; echo 0 >{TRACING}/events/{PROBE}/enable; "
                   f"echo >{TRACING}/kprobe_events")


# The debug kernel has no probe events.
@test(machines=1, kinds=("stock",))
def completion_vectors(bench: Bench) -> None:
    """Completion queues use the adapter's completion vectors in turn."""
    vm = bench.a
    # comp_vector is the second member of struct ib_cq_init_attr.
    with probed(vm, "rxe_create_cq vector=+4(%si):u32"):
        connections = 4
        command = f"exec selftest stream --family sdp --conns {connections} --bytes 1000"
        jobs = [vm.spawn(f"{command} --listen {bench.address(vm)}:7650")]
        # A refused connect also has a completion queue.
        wait_for(lambda: vm.check("sdpctl ss -lH --sport 7650"), bench.limit(20), "nobody listens")
        jobs.append(vm.spawn(f"{command} --connect {bench.address(vm)}:7650"))
        for job in jobs:
            bench.succeed(job, 60)
        trace = vm.check(f"cat {TRACING}/trace")
    used = collections.Counter(int(n) for n in re.findall(r" vector=(\d+)", trace))
    processors = int(vm.check("nproc"))
    expect(processors > 1 and sum(used.values()) == 2 * connections, f"{processors} processors, {used}:\n{trace}")
    each = 2 * connections // processors
    expect(used == dict.fromkeys(range(processors), each), f"queues by vector: {dict(used)}")
    wait_for(lambda: not vm.check("sdpctl ss -aH"), bench.limit(30), "connections stay")


CONNECTIONS = """
import socket

listener = socket.socket(10, socket.SOCK_STREAM, {protocol})
listener.setsockopt(41, socket.IPV6_V6ONLY, 0)
listener.bind(("::", 0))
nobody = socket.socket(10, socket.SOCK_STREAM, {protocol})
nobody.bind(("::", 0))
listener.listen(100)

for family, host, options, again in {cases}:
    s = socket.socket(family, socket.SOCK_STREAM, {protocol})
    for option in options:
        s.setsockopt(*option)
    if again:
        assert s.connect_ex((host, nobody.getsockname()[1])) == 111
        s.setsockopt(*again)
    s.connect((host, listener.getsockname()[1]))
    s.setsockopt(0, socket.IP_TOS, 0x68)
    s.send(b"x")
    s.close()
"""


@test(machines=1, kinds=("stock",))
def service_types(bench: Bench) -> None:
    """connect() passes IP_TOS, IPV6_TCLASS or SO_PRIORITY to the RDMA CM. A value that is set later applies to the
    next connect()."""
    vm, here = bench.a, bench.address(bench.a)
    v4, v6 = (2, here), (10, "::1")
    tos, priority, tclass = (0, 1), (1, 12), (41, 67)
    none: tuple[int, ...] = ()
    cases: tuple[tuple[tuple[int, str], list[tuple[int, ...]], tuple[int, ...], list[int]], ...] = (
        (v4, [], none, []),
        (v4, [(*tos, 0x48)], none, [0x48]),
        (v4, [(*priority, 2)], none, [0x08]),
        (v4, [(*priority, 3)], none, []),
        (v4, [(*priority, 4)], none, [0x18]),
        (v4, [(*priority, 6)], none, [0x10]),
        (v4, [(*tos, 0x48), (*priority, 6)], none, [0x48]),
        (v4, [(*tos, 0x48), (*tos, 0)], none, []),
        (v6, [(*tclass, 0x20)], none, [0x20]),
        (v6, [(*priority, 4)], none, [0x18]),
        ((10, f"::ffff:{here}"), [(*tclass, 0x20), (*tos, 0x48)], none, [0x48]),
        (v4, [(*tos, 0x48)], (*tos, 0x28), [0x48, 0x28]),
        (v4, [], (*priority, 6), [0x10]),
    )
    program = CONNECTIONS.format(protocol=IPPROTO_SDP, cases=[(*to, options, again) for to, options, again, _ in cases])
    with probed(vm, "rdma_set_service_type tos=%si:s32"):
        vm.check(f"python3 -c {shlex.quote(program)}")
        trace = vm.check(f"cat {TRACING}/trace")
    passed = [int(n) for n in re.findall(r" tos=(\d+)", trace)]
    wanted = [n for *_, service_types in cases for n in service_types]
    expect(passed == wanted, f"{passed}, not {wanted}:\n{trace}")
