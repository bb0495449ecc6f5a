# SPDX-License-Identifier: GPL-2.0
"""sdpctl conn, bench and debug on live connections."""

import json

from vmlib.bench import Bench, expect, test, wait_for
from vmlib.machine import Vm
from vmlib.schema import Json
from vmtests.sdpctl import BYTES, Connections, ask, sockets
from vmtests.settings import unloaded


@test(machines=1, core=("stock",))
def conn(bench: Bench) -> None:
    """One connection by each of its numbers, with all values that the test knows."""
    vm = bench.a
    with Connections(bench, 7801, 2):
        wait_for(lambda: sum(s["recv_queue"] for s in sockets(vm, "--sport 7801")) == 2 * BYTES, bench.limit(20),
                 "not all has come")
        known = sockets(vm, "-p --sport 7801")[0]
        for number in (known["inode"], known["cookie"]):
            found = ask(vm, f"conn {number}")["connections"]
            # The pace contains times, which differ.
            same = {"pace": known["pace"]}
            expect(len(found) == 1 and found[0]["socket"] | same == known, f"{number}: {found}\n{known}")
            expect(found[0]["socket"]["pace"]["bytes_received"] == BYTES, found)
            expect(found[0]["others"] == [], found)
        by_port = ask(vm, "conn 7801")["connections"]
        expect(len(by_port) == 2, by_port)
        text = vm.check(f"sdpctl conn {known['cookie']}")
        for words in ("Established", f"{BYTES} bytes not read", f"inode {known['inode']}", f"rx_bytes {BYTES}",
                      "selftest (pid "):
            expect(words in text, f"no `{words}` in\n{text}")
        expect("\x1b" not in text, "colours without a terminal")
        missing = vm.run("sdpctl conn 999999999 2>&1")
        expect(missing.rc == 1 and "no socket has 999999999" in missing.output, missing.output)
    with unloaded(bench):
        expect(vm.run("sdpctl conn 1").rc == 3, "without the module")


@test(core=("stock",))
def bench_against_a_peer(bench: Bench) -> None:
    """Figures for each mode and size; the module has carried the bytes that the tool reports."""
    vm, there = bench.a, bench.address(bench.b)
    server = bench.b.spawn("exec sdpctl bench --listen --count 2")
    wait_for(lambda: any("listening" in line for line in server.lines), bench.limit(20), server)
    before = bench.stats(vm)
    report = ask(vm, f"bench {there} --seconds 0.1 --sizes 64,64K")
    figures = report["figures"]
    expect([(f["mode"], f["message_bytes"]) for f in figures] ==
           [(mode, size) for mode in ("auto", "copy", "sync", "async", "sink") for size in (64, 65536)], figures)
    expect(all(f["latency_us"] > 0 and f["throughput_mb_s"] > 0 for f in figures), figures)

    def moved() -> int:
        """Bytes sent by the adapter, and bytes that the peer has read from the tool's memory."""
        after = bench.stats(vm)
        return sum(after[name] - before[name] for name in ("tx_bytes", "tx_zcopy_bytes"))
    # Eight round trips and eight messages to warm up, and a header of 16 bytes at the start of each
    # of six phases.
    said = sum((f["round_trips"] + f["messages"] + 16) * f["message_bytes"] + 96 for f in figures)
    # The sender may learn of a Write's completion after the peer's answer.
    wait_for(lambda: moved() >= said, bench.limit(20), f"{moved()} bytes, not {said}")
    expect(moved() == said, f"{moved()} bytes, not {said}")
    text = vm.check(f"sdpctl bench {there} --seconds 0.05 --sizes 1K --modes copy").splitlines()
    expect(len(text) == 2 and text[1].split()[:2] == ["copy", "1K"], "\n".join(text))
    bench.succeed(server, 20)
    nobody = vm.run(f"sdpctl bench {there} 2>&1")
    expect(nobody.rc == 1 and "Connection refused" in nobody.output, f"{nobody.rc} {nobody.output}")
    for bad in ("", f"{there} --sizes 17M", f"{there} --modes fast", f"{there} --seconds 0"):
        expect(vm.run(f"sdpctl bench {bad}").rc == 2, bad)


@test(machines=1, core=("stock",))
def bench_peers_are_not_trusted(bench: Bench) -> None:
    """A client that does not speak the protocol gets an error and is disconnected."""
    vm, address = bench.a, bench.address(bench.a)
    server = vm.spawn(f"exec sdpctl bench --listen {address}:7804")
    wait_for(lambda: any("listening" in line for line in server.lines), bench.limit(20), server)
    vm.run(f"selftest stream --family sdp --connect {address}:7804 --conns 2 --bytes 100000 --seed 1")
    wait_for(lambda: sum("not what" in line for line in server.lines) == 2, bench.limit(20), server)
    figures = ask(vm, f"bench {address}:7804 --seconds 0.05 --sizes 64 --modes copy")["figures"]
    expect(len(figures) == 1, figures)
    server.kill()


def archive(vm: Vm, before: str = "", after: str = "") -> tuple[set[str], Json]:
    """The names of the files in the archive of `sdpctl debug`, and its output."""
    vm.check("rm -rf /tmp/debug* && mkdir /tmp/debug")
    said = vm.run(f"cd /tmp && {before} sdpctl --json debug -o /tmp/debug.tar {after}")
    expect(said.rc == 0, f"{said.rc} {said.output}")
    names = vm.check("cd /tmp/debug && tar -xf ../debug.tar && find . -type f").splitlines()
    return {name.split("/", 2)[2] for name in names}, json.loads(said.output)


@test(machines=1, core=("stock",))
def debug(bench: Bench) -> None:
    """The archive contains what a bug report needs, and no secret."""
    vm = bench.a
    secret = vm.spawn("TOKEN=hunter2hunter2 exec selftest idle --family sdp --listen 10.27.0.1:7805 --conns 1")
    with Connections(bench, 7806, 1):
        names, report = archive(vm)
        ask(vm, "debug -o /tmp/debug2.tar")
        expect({"versions.json", "check.json", "dev.json", "settings.json", "counters.json", "sockets.json",
                "module.json", "kernel.log", "modules.txt", "proc/net/sdp", "proc/self/limits"} <= names, names)
        expect(len(report["files"]) == len(names), report)
        ports = [s["local"]["port"] for s in json.loads(vm.check("cat /tmp/debug/*/sockets.json"))]
        expect(7806 in ports, ports)
        expect(vm.check("stat -c %a /tmp/debug.tar") == "600", "the archive is not its owner's alone")
        expect("ib_sdp" in vm.check("cat /tmp/debug/*/modules.txt"), "no module")
        for word in ("hunter2", "idle --family", "console=ttyS0"):
            expect(not vm.run(f"grep -r '{word}' /tmp/debug").ok, f"`{word}` is in the archive")
        again = vm.run("sdpctl debug -o /tmp/debug.tar 2>&1")
        expect(again.rc == 1 and "exists" in again.output, again.output)
        counted = vm.check("sdpctl debug -o - 2>/dev/null | tar -t | wc -l")
        expect(int(counted) == len(names), counted)
    secret.kill()
    with unloaded(bench):
        names, report = archive(vm)
        expect({"versions.json", "check.json", "missing.txt"} <= names and "sockets.json" not in names, names)
    vm.check("chmod 777 /tmp")
    said = vm.run("rm -f /tmp/n.tar; busybox su nobody -s /bin/sh -c 'sdpctl debug -o /tmp/n.tar'")
    expect(said.rc == 0, said.output)
