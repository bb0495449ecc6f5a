# SPDX-License-Identifier: GPL-2.0
"""sdpctl steer: the kernel opens TCP sockets of chosen programs as SDP sockets. The debug kernel has no BTF."""

import contextlib
import functools
import json
from collections.abc import Iterator

from vmlib.bench import Bench, expect, wait_for
from vmlib.bench import test as any_test
from vmlib.machine import Vm
from vmlib.schema import load, validate
from vmtests.lifecycle import loaded
from vmtests.sdpctl import ask

test = functools.partial(any_test, machines=1, kinds=("stock",))
GROUPS = "/tmp/cgroup"


@contextlib.contextmanager
def steering(vm: Vm) -> Iterator[None]:
    """Mounts the file systems that rules need. Afterwards deletes all rules."""
    vm.check(f"mount -t bpf -o mode=1777 bpf /sys/fs/bpf && mkdir -p {GROUPS} && mount -t cgroup2 cgroup {GROUPS}")
    try:
        yield
    finally:
        vm.check(f"sdpctl steer del --all; umount /sys/fs/bpf; umount {GROUPS}")


def way_of_netcat(bench: Bench, port: int, before: str = "", busybox: str = "busybox") -> str:
    """A statically linked program sends a text to itself. Returns the protocol that carried the text."""
    vm, here = bench.a, bench.address(bench.a)
    was = bench.stats(vm)["rx_bytes"]
    # The server's standard input must not end: the server would then shut down its half of the
    # stream, and the client would exit on that whether or not it has sent the text.
    vm.check("rm -f /tmp/never; mkfifo /tmp/never")
    server = vm.spawn(f"{before} exec {busybox} nc -l -p {port} <>/tmp/never")
    try:
        tcp = f"grep -q ':{port:04X} .* 0A ' /proc/net/tcp /proc/net/tcp6"
        sdp = f"sdpctl ss -lH --sport {port} | grep -q ."
        wait_for(lambda: vm.run(f"{tcp} || {sdp}").ok, bench.limit(20), "nobody listens")
        way = "tcp" if vm.run(tcp).ok else "sdp"
        vm.check(f"sh -c '{before} echo steered | {busybox} nc {here} {port}'")
        expect(bench.succeed(server, 20).strip() == "steered", server.output)
    finally:
        server.kill()
    expect((bench.stats(vm)["rx_bytes"] - was > 0) == (way == "sdp"), "the text went another way")
    return way


@test()
def by_program(bench: Bench) -> None:
    """A rule changes a statically linked program, which no library can change, and no other program."""
    with steering(bench.a):
        expect(way_of_netcat(bench, 7401) == "tcp", "without a rule")
        expect(bench.a.check("sdpctl steer add --program busybox").strip() == "rule 1", "the first rule")
        expect(way_of_netcat(bench, 7402) == "sdp", "with a rule")
        bench.a.check("cp /bin/busybox /tmp/busybox2")
        expect(way_of_netcat(bench, 7403, busybox="/tmp/busybox2") == "tcp", "a program of another name")
        bench.a.check("sdpctl steer del 1")
        expect(way_of_netcat(bench, 7404) == "tcp", "without the rule again")


@test()
def falls_back(bench: Bench) -> None:
    """A program with a rule reaches a server that has none, if the administrator allows TCP where SDP fails."""
    vm, here = bench.a, bench.address(bench.a)
    vm.check("cp /bin/busybox /tmp/busybox2; rm -f /tmp/never; mkfifo /tmp/never")
    with steering(vm):
        vm.check("sdpctl steer add --program busybox")
        server = vm.spawn("exec /tmp/busybox2 nc -l -p 7421 <>/tmp/never")
        try:
            wait_for(lambda: vm.run("grep -q ':1CFD .* 0A ' /proc/net/tcp /proc/net/tcp6").ok, bench.limit(20),
                     "nobody listens")
            send = f"echo steered | busybox nc {here} 7421 2>&1"
            refused = vm.run(send)
            expect("refused" in refused.output, refused.output)
            vm.check("sdpctl set tcp_fallback=1")
            vm.check(send)
            expect(bench.succeed(server, 20).strip() == "steered", server.output)
        finally:
            vm.check("sdpctl set tcp_fallback=0")
            server.kill()


@test()
def by_control_group(bench: Bench) -> None:
    """Processes of a control group and of its descendants, also combined with a program name."""
    vm = bench.a
    inside = f"echo $$ >{GROUPS}/a/b/cgroup.procs &&"
    beside = f"echo $$ >{GROUPS}/c/cgroup.procs &&"
    with steering(vm):
        vm.check(f"mkdir -p {GROUPS}/a/b {GROUPS}/c")
        vm.check(f"sdpctl steer add --cgroup {GROUPS}/a")
        expect(way_of_netcat(bench, 7411, inside) == "sdp", "in the group")
        expect(way_of_netcat(bench, 7412, beside) == "tcp", "in another group")
        expect(way_of_netcat(bench, 7413) == "tcp", "in no group")
        vm.check(f"sdpctl steer del 1; sdpctl steer add --cgroup {GROUPS}/a/b --program nobody")
        expect(way_of_netcat(bench, 7414, inside) == "tcp", "in the group, by another name")
        vm.check(f"sdpctl steer add --cgroup {GROUPS}/a/b --program busybox")
        expect(way_of_netcat(bench, 7415, inside) == "sdp", "in the group, by that name")
        rules = ask(vm, "steer")["rules"]
        expect([rule["number"] for rule in rules] == [1, 2], rules)
        second = {"number": 2, "program": "busybox", "cgroup": f"{GROUPS}/a/b", "is_stale": False}
        expect(rules[1] == second, rules)
        # As when a service is restarted.
        vm.check(f"rmdir {GROUPS}/a/b && mkdir {GROUPS}/a/b")
        expect(way_of_netcat(bench, 7416, inside) == "tcp", "in a new group at the old place")
        expect(all(rule["is_stale"] for rule in ask(vm, "steer")["rules"]), "the rules are not called stale")
        added = json.loads(vm.check(f"sdpctl --json steer add --cgroup {GROUPS}/a/b --program busybox"))
        validate(added, "rule", load())
        expect(len(ask(vm, "steer")["rules"]) == 2, "the stale rule is still there")
        expect(way_of_netcat(bench, 7417, inside) == "sdp", "with the rule anew")


@test()
def loads_the_module(bench: Bench) -> None:
    """A rule stays when the module is unloaded, and the next socket loads the module again."""
    vm = bench.a
    with steering(vm):
        vm.check("sdpctl steer add --all")
        for protocol in (0, 6, 262):
            # SO_PROTOCOL.
            program = f"import socket; print(socket.socket(2, 1, {protocol}).getsockopt(1, 38))"
            said = vm.check(f"python3 -c '{program}'").strip()
            expect(said == "257", f"a socket of protocol {protocol} is one of {said}")
        bench.unload(vm)
        server = vm.spawn("exec busybox nc -l -p 7421")
        wait_for(lambda: loaded(vm), bench.limit(20), "the module did not load by itself")
        server.kill()


@test()
def what_is_refused(bench: Bench) -> None:
    """Each error is reported in one sentence, with the exit status of its kind."""
    vm = bench.a

    def refused(command: str, status: int, words: str) -> None:
        result = vm.run(f"{command} 2>&1")
        expect(result.rc == status and words in result.output, f"{command}: {result.rc}\n{result.output}")
    refused("sdpctl steer add --all", 1, "mount -t bpf")
    refused("sdpctl steer add", 2, "--program")
    refused("sdpctl steer del", 2, "--all")
    refused("sdpctl steer add --all --program x", 2, "cannot be used with")
    with steering(vm):
        refused("sdpctl steer add --program ''", 2, "not a name of a program")
        refused("sdpctl steer add --program bin/x", 2, "not a name of a program")
        refused("sdpctl steer add --cgroup /proc/1", 1, "not a control group")
        refused(f"sdpctl steer add --cgroup {GROUPS}/cgroup.procs", 1, "not a control group")
        refused("sdpctl -N x steer", 1, "no network namespace")
        vm.check("ip netns add x")
        refused("sdpctl -N x steer", 2, "no --netns")
        vm.check("ip netns del x")
        refused(f"sdpctl steer add --cgroup {GROUPS}/none", 1, "No such file")
        refused("sdpctl steer del 1", 1, "no rule 1")
        refused("busybox su nobody -s /bin/sh -c 'sdpctl steer add --all'", 4, "as root")
        expect(not vm.run("test -e /sys/fs/bpf/sdpctl").ok, "who may not add rules has made their folder")
        vm.check("busybox su nobody -s /bin/sh -c 'mkdir /sys/fs/bpf/sdpctl'")
        refused("sdpctl steer add --all", 1, "not a folder of root's alone")
        vm.check("rmdir /sys/fs/bpf/sdpctl")
        vm.check("sdpctl steer add --all")
        refused("sdpctl steer add --all", 1, "rule 1 says the same")
        refused("sdpctl steer del 1 2", 1, "no rule 2")
        expect(len(ask(vm, "steer")["rules"]) == 1, "it has removed one of two, and failed")
        bench.unload(vm)
        vm.check("mv /sbin/modprobe /sbin/modprobe.away")
        try:
            refused("sdpctl steer add --program x", 3, "not loaded")
        finally:
            vm.check("mv /sbin/modprobe.away /sbin/modprobe")
            bench.load(vm)
