# SPDX-License-Identifier: GPL-2.0
"""Connections when memory is scarce."""

import re

from vmlib.bench import Bench, expect, present, test, wait_for
from vmlib.machine import Vm

# Every connection finds more than a quarter of the first limit used, and therefore gets no receives
# larger than a page. The other limits are not reached.
MEM = "3 4000000 6000000"


def connected(vm: Vm, port: int) -> list[str]:
    """The lines of /proc/net/sdp for both ends of a connection to that port."""
    return [line for line in vm.check("cat /proc/net/sdp").splitlines()
            if f":{port} " in line and "established" in line.lower()]


@test(machines=1, core=("stock",))
def receives_of_parts_of_a_page(bench: Bench) -> None:
    """The selftests with initial receives of 768 bytes."""
    vm = bench.a
    before = vm.check("cat /proc/sys/net/sdp/mem")
    vm.check(f"echo '{MEM}' >/proc/sys/net/sdp/mem")
    try:
        # Standard input that never ends.
        vm.check("rm -f /tmp/never; mkfifo /tmp/never")
        idle = f"exec selftest idle --family sdp --conns 1 {{}} {bench.address(vm)}:7661 <>/tmp/never"
        ends = [vm.spawn(idle.format("--listen"))]
        wait_for(lambda: vm.check("sdpctl ss -lH --sport 7661"), bench.limit(20), "nobody listens")
        ends.append(vm.spawn(idle.format("--connect")))
        try:
            wait_for(lambda: len(connected(vm, 7661)) == 2, bench.limit(20), "no connection")
            sizes = [line.split()[7] for line in connected(vm, 7661)]
            expect(sizes == ["768", "768"], f"receives of {sizes} bytes")
        finally:
            for end in ends:
                end.kill()
        # The suite compares counters of the machine, which other connections have changed.
        bench.unload(vm)
        bench.load(vm)
        vm.check(f"echo '{MEM}' >/proc/sys/net/sdp/mem")
        groups = "data/ blocking/ sink/ zcopy/not_one_copy zcopy/of_every_size zcopy/many"
        suite = vm.spawn(bench.selftest(groups))
        bench.finish(suite, 100)
        results = [line for line in suite.lines if re.match(r"(not )?ok ", line)]
        failed = [line for line in results if line.startswith("not ok")]
        expect(len(results) > 50, f"{len(results)} results:\n{suite.output[-3000:]}")
        expect(not failed, "\n".join(failed) + f"\n{suite.output[-3000:]}")
    finally:
        vm.check(f"echo '{before}' >/proc/sys/net/sdp/mem")


# With KASAN a connection uses more memory than the limit assumes.
@test(machines=1, kinds=("stock",))
def connections_leave_memory_to_others(bench: Bench) -> None:
    """As many idle connections as the limit by memory allows, as root, who has no limit per user."""
    vm = bench.a

    def available() -> int:
        return int(vm.check("sed -n 's/^MemAvailable: *\\([0-9]*\\) kB$/\\1/p' /proc/meminfo"))
    wait_for(lambda: connections(vm) == 0, bench.limit(60), "connections of other tests are left")
    refused = bench.stats(vm)["refused_max_connections"]
    # What was in use before is not the connections'.
    before = available()
    where = f"sdpbench --family sdp {bench.address(vm)}:7662"
    server = vm.spawn(f"exec {where} serve")
    wait_for(lambda: "serving" in server.output, bench.limit(20), "nobody serves")
    idle = vm.spawn(f"exec {where} idle 100000")
    try:
        # The refused connection ends the program. Its connections remain at the server and as
        # orphans.
        wait_for(lambda: idle.ended.is_set() or bench.stats(vm)["refused_max_connections"] > refused,
                 bench.limit(200), f"no limit: {connections(vm)} connections")
        left = available()
        expect(left > before / 5, f"{left} of {before} KiB are left")
        expect(bench.stats(vm)["refused_max_connections"] > refused, f"another end: {idle.output}")
    finally:
        for job in (idle, server):
            job.kill()
            job.wait(60)
    wait_for(lambda: connections(vm) == 0, bench.limit(120), "connections are left")


def connections(vm: Vm) -> int:
    """The number of ends."""
    return len(vm.check("cat /proc/net/sdp").splitlines()) - 1


# Runs a command as a user without privileges.
AS_NOBODY = "python3 -c 'import os, sys; os.setgid(65534); os.setuid(65534); os.execvp(sys.argv[1], sys.argv[1:])'"


def loaded_anew(bench: Bench) -> Vm:
    """The machine with an empty log and a module that has reported nothing: the log reports each limit once per load
    of the module. Programs that wait for ever can read /tmp/never."""
    vm = bench.a
    bench.settle(vm, 60)
    bench.unload(vm)
    bench.load(vm)
    vm.check("dmesg -c >/dev/null; rm -f /tmp/never; mkfifo /tmp/never")
    return vm


@test(machines=1, core=("stock",))
def limits_are_reported(bench: Bench) -> None:
    """A limit of connections is shown by `sdpctl get`, and when it is reached, it is reported in the kernel's log,
    once, and by `sdpctl check` where a connect() fails."""
    vm = loaded_anew(bench)
    where = f"{bench.address(vm)}:7663"
    idle = f"selftest idle --family sdp --conns {{}} {{}} {where} <>/tmp/never"
    ends = [vm.spawn("exec " + idle.format(2, "--listen"))]
    try:
        wait_for(lambda: vm.check("sdpctl ss -lH --sport 7663"), bench.limit(20), "nobody listens")
        ends.append(vm.spawn(f"exec {AS_NOBODY} " + idle.format(1, "--connect")))
        wait_for(lambda: connections(vm) == 3, bench.limit(20), "no connection")
        # One end belongs to root, who has no limit as a user.
        for limit, count in (("max_connections", 2), ("max_user_connections", 1), ("max_orphans", 0)):
            shown = vm.check(f"sdpctl get {limit}").splitlines()[-1]
            found = present(re.search(r"\(limit: (\d+), in use: (\d+)\)$", shown), shown)
            expect(int(found[1]) > 1000 and int(found[2]) == count, shown)
        for limit, value, user, line in (
                ("max_user_connections", 1, AS_NOBODY, "max_user_connections: user 65534 has 1, more are refused"),
                ("max_connections", 2, "", "max_connections: 2 connections, more are refused")):
            before = vm.check(f"cat /proc/sys/net/sdp/{limit}")
            vm.check(f"echo {value} >/proc/sys/net/sdp/{limit}")
            try:
                for _ in range(2):
                    refused = bench.stats(vm)[f"refused_{limit}"]
                    result = vm.run(f"{user} sdpctl check {where} 2>&1")
                    expect(not result.ok and limit in result.output and "sdpctl stat refused_max" in result.output,
                           f"{limit}: {result.output}")
                    expect(f"sdpctl set {limit}=" in result.output, f"no warning of {limit}: {result.output}")
                    expect(bench.stats(vm)[f"refused_{limit}"] == refused + 1, f"{limit}: another end")
            finally:
                vm.check(f"echo {before} >/proc/sys/net/sdp/{limit}")
            said = logged(vm, f"{limit}: ")
            expect(len(said) == 1 and said[0].endswith(line), f"the log says {said}")
    finally:
        for end in ends:
            end.kill()


@test(machines=1, core=("stock",))
def memory_limit_is_reported(bench: Bench) -> None:
    """The same for `mem`, which the buffers of all sockets share."""
    vm = loaded_anew(bench)
    where = f"{bench.address(vm)}:7664"
    # Each processor may account 1 MiB later, so it takes some connections until the kernel sees that their memory is
    # more than a page.
    idle = f"exec selftest idle --family sdp --conns {{}} {{}} {where} <>/tmp/never"
    ends = [vm.spawn(idle.format(151, "--listen"))]
    before = vm.check("cat /proc/sys/net/sdp/mem")
    try:
        wait_for(lambda: vm.check("sdpctl ss -lH --sport 7664"), bench.limit(20), "nobody listens")
        ends.append(vm.spawn(idle.format(150, "--connect")))
        wait_for(lambda: len(connected(vm, 7664)) == 300, bench.limit(60), "connections are missing")
        vm.check("echo 1 1 1 >/proc/sys/net/sdp/mem")
        for _ in range(2):
            refused = bench.stats(vm)["refused_mem"]
            result = vm.run(f"sdpctl check {where} 2>&1")
            expect(not result.ok and "No buffer space" in result.output and "refused_mem" in result.output,
                   result.output)
            expect(bench.stats(vm)["refused_mem"] == refused + 1, f"another end: {result.output}")
        said = logged(vm, "mem: ")
        expect(len(said) == 1 and said[0].endswith("mem: the sockets use all of it, new connections are refused"),
               f"the log says {said}")
    finally:
        vm.check(f"echo '{before}' >/proc/sys/net/sdp/mem")
        for end in ends:
            end.kill()


@test(machines=1, core=("stock",))
def orphans_are_reported(bench: Bench) -> None:
    """The kernel's log reports that connections are aborted because of max_orphans."""
    vm = bench.a
    burst = "/proc/sys/net/core/message_burst"
    before = vm.check(f"cat {burst}")
    # The core limits the rate of such messages, all of which count together.
    vm.check(f"echo 1000 >{burst}; sleep $(cat /proc/sys/net/core/message_cost); dmesg -c >/dev/null")
    try:
        aborted = bench.stats(vm)["aborted_max_orphans"]
        bench.succeed(vm.spawn(bench.selftest("limits/orphans")), 60)
        aborted = bench.stats(vm)["aborted_max_orphans"] - aborted
    finally:
        vm.check(f"echo {before} >{burst}")
    said = logged(vm, "max_orphans: ")
    expect(0 < len(said) <= aborted, f"{aborted} were aborted, the log says {said}")
    expect("too many orphaned sockets (2)" in said[0], said[0])


def logged(vm: Vm, begin: str) -> list[str]:
    """Lines of the module in the kernel's log, since this was cleared."""
    return [line for line in vm.check("dmesg").splitlines() if f"ib_sdp: {begin}" in line]
