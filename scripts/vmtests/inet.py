# SPDX-License-Identifier: GPL-2.0
"""Sockets of AF_INET and AF_INET6 with SDP's protocol number, 257."""

import errno
import functools
import re

from vmlib.bench import Bench, expect, test, wait_for
from vmtests.lifecycle import loaded
from vmtests.sdpctl import sockets

SELFTEST = "selftest --by-protocol"

# Groups that depend on what differs between the kinds of sockets: creation, addresses, and
# address-related options.
GROUPS = "astcp/ addresses/ basics/ close/ connect/ fastopen/ listen/ netns/ options/ poll/ reset/"


@test(machines=1)
def sockets_load_the_module(bench: Bench) -> None:
    """The kernel asks for net-pf-2-proto-257-type-1, and for the like of AF_INET6."""
    for address in ("127.0.0.1:7021", "[::1]:7021"):
        bench.unload(bench.a)
        expect(not loaded(bench.a), "the module is still there after rmmod")
        server = bench.a.spawn(f"exec {SELFTEST} stream --family sdp --listen {address} --conns 1 --bytes 1 --seed 1")
        wait_for(lambda: bench.a.run("sdpctl ss -lH --sport 7021 | grep -q .").ok, bench.limit(20),
                 "nobody listens: the module did not load by itself")
        expect(not bench.a.run("rmmod ib_sdp").ok, "the module went although a socket is open")
        server.kill()


@test(machines=1, core=("stock",))
def the_suite_inside(bench: Bench) -> None:
    """The selftests with AF_INET and AF_INET6 instead of the families 27 and 28."""
    before = bench.stats(bench.a)["accepted"]
    job = bench.a.spawn(bench.selftest(GROUPS).replace("selftest", SELFTEST, 1))
    bench.finish(job, bench.limit(300))
    results = [line for line in job.lines if re.match(r"(not )?ok ", line)]
    failed = [line for line in results if line.startswith("not ok")]
    expect(len(results) > 200, f"{len(results)} results:\n{job.output[-3000:]}")
    expect(not failed, "\n".join(failed))
    accepted = bench.stats(bench.a)["accepted"] - before
    expect(accepted > 20, f"{accepted} connections by SDP")


@test(core=("stock",))
def falls_back(bench: Bench) -> None:
    """A client reaches a server that only TCP has, in the other machine, if the administrator allows it. sdpctl
    shows this, and the process."""
    vm, there = bench.a, f"{bench.address(bench.b)}:7024"
    hold = "sleep 1000 | exec"
    server = bench.b.spawn(f"{hold} selftest stream --family tcp --hold --listen {there}")
    wait_for(lambda: bench.b.run("grep -q ':1B70 .* 0A ' /proc/net/tcp").ok, bench.limit(20), "nobody listens")
    client = f"{SELFTEST} stream --family sdp --hold --connect {there}"
    refused = vm.run(f"{client} 2>&1")
    expect(not refused.ok and "refused" in refused.output, refused.output)
    vm.check("sdpctl set tcp_fallback=1")
    try:
        before = bench.stats(vm)["connect_fell_back"]
        jobs = [server, vm.spawn(f"{hold} {client}")]
        for job in jobs:
            wait_for(functools.partial(job.says, "bytes, 0 wrong"), bench.limit(30), job)
        expect(bench.stats(vm)["connect_fell_back"] == before + 1, "the counter says something else")
        shown = vm.check("sdpctl ss -eHp --dport 7024")
        expect(re.match(rf"TCP +0 +0 .* {there} ", shown) and "sdp-error:Connection refused" in shown
               and '"selftest"' in shown, shown)
        [socket] = sockets(vm)
        expect(socket["options"] == ["tcp-fallback"] and socket["error"] == errno.ECONNREFUSED, socket)
        for job in jobs:
            job.kill()
        wait_for(lambda: not sockets(vm), bench.limit(10), "it is still shown")
    finally:
        vm.check("sdpctl set tcp_fallback=0")


@test(core=("stock",))
def samples(bench: Bench) -> None:
    """The samples in C, Rust, and Python, which supports only the addresses of AF_INET. The others need a disk
    (debian.sample_*)."""
    there = f"{bench.address(bench.b)} 7023"
    programs = ("hello", "python3 /usr/bin/hello.py", "hello-rust")
    for serves, asks in zip(programs, programs[1:] + programs[:1], strict=True):
        server = bench.b.spawn(f"exec {serves} serve {there}")
        try:
            wait_for(lambda: bench.b.check("sdpctl ss -lH --sport 7023"), bench.limit(20), "nobody listens")
            before = bench.stats(bench.b)["rx_bytes"]
            expect(bench.a.check(f"{asks} ask {there} 'hello over SDP'").strip() == "hello over SDP", asks)
            bench.succeed(server, 20)
        finally:
            server.kill()
        expect(bench.stats(bench.b)["rx_bytes"] - before == len("hello over SDP"), "the text did not go by SDP")


@test(core=("stock", "debug"))
def meet_the_families(bench: Bench) -> None:
    """A connection has one end of each kind, or two ends of this kind."""
    there = bench.address(bench.b)
    count, size = 3, bench.amount(300_000)
    numbers = f"--conns {count} --bytes {size} --seed 3"
    for listening, connecting in ((SELFTEST, "selftest"), ("selftest", SELFTEST), (SELFTEST, SELFTEST)):
        before = bench.stats(bench.b)["accepted"]
        server = bench.b.spawn(f"exec {listening} stream --family sdp --listen {there}:7022 {numbers}")
        client = bench.a.spawn(f"exec {connecting} stream --family sdp --connect {there}:7022 {numbers}")
        for job in (client, server):
            expect("0 wrong" in bench.succeed(job, 100), job.output)
        expect(bench.stats(bench.b)["accepted"] - before == count, "the connections are not SDP's")
