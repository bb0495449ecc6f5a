# SPDX-License-Identifier: GPL-2.0
"""sdpctl on live connections: its output agrees with what the test has done."""

import contextlib
import errno
import functools
import json
from collections.abc import Iterator
from socket import IPPROTO_TCP
from typing import Self

from vmlib.bench import BY_ADVERTS, Bench, Failure, expect, test, wait_for
from vmlib.machine import Job, Vm
from vmlib.schema import Invalid, Json, Socket, load, validate

CONNECTIONS = 5
IPPROTO_SDP = 257
BYTES = 1235


def ask(vm: Vm, arguments: str, name: str | None = None, status: int = 0) -> Json:
    """The JSON output of sdpctl, checked against the schema. `arguments` begin with the command."""
    result = vm.run(f"sdpctl --json {arguments} 2>&1")
    expect(result.rc == status, f"sdpctl {arguments} ended with {result.rc}:\n{result.output}")
    try:
        value = json.loads(result.output)
        validate(value, name or arguments.split()[0], load())
    except (ValueError, Invalid) as e:
        raise Failure(f"sdpctl {arguments}: {e}\n{result.output}") from None
    return value


def has_user_namespaces(vm: Vm) -> bool:
    """False on the debug kernel."""
    return vm.run("test -e /proc/self/ns/user").ok


def sockets(vm: Vm, filters: str = "") -> list[Socket]:
    shown: list[Socket] = ask(vm, f"ss {filters}")["sockets"]
    return shown


class Connections:
    """Connections from the first machine to itself, each with unread bytes."""

    def __init__(self, bench: Bench, port: int, count: int = CONNECTIONS, family: str = "") -> None:
        self.vm = bench.a
        address = "[fd27::1]" if family else bench.address(bench.a)
        # Standard input stays open to keep the connections open.
        hold = "sleep 1000 | exec selftest idle --family sdp"
        self.jobs = [self.vm.spawn(f"{hold} --listen {address}:{port} --conns {count}")]
        self.jobs.append(self.vm.spawn(f"{hold} --connect {address}:{port} --conns {count} --bytes {BYTES}"))
        for job in self.jobs:
            wait_for(functools.partial(job.says, "open"), bench.limit(30), job)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for job in self.jobs:
            job.kill()


@test(machines=1, core=("stock",))
def ss(bench: Bench) -> None:
    """Every value that the test knows, and every filter."""
    vm, address = bench.a, bench.address(bench.a)
    with Connections(bench, 7601), Connections(bench, 7602, 1, "6"):
        wait_for(lambda: sum(s["recv_queue"] for s in sockets(vm, "--sport 7601")) == CONNECTIONS * BYTES,
                 bench.limit(20), f"not all has come: {sockets(vm, '--sport 7601')}")
        served = sockets(vm, "--sport 7601")
        made = sockets(vm, "--dport 7601")
        expect(len(served) == CONNECTIONS and len(made) == CONNECTIONS, f"{served}\n{made}")
        for socket in served:
            expect(socket["recv_queue"] == BYTES and socket["send_queue"] == 0, socket)
            expect(socket["local"] == {"address": address, "port": 7601}, socket)
            expect(socket["receives_posted"] > 0 and socket["credits"] > 0, socket)
        for socket in made:
            expect(socket["recv_queue"] == 0 and socket["peer"] == {"address": address, "port": 7601}, socket)
        for socket in served:
            expect(socket["counters"]["rx_bytes"] == BYTES and "rx_copied_bytes" not in socket["counters"], socket)
            expect(socket["pace"]["bytes_received"] == BYTES and socket["pace"]["bytes_sent"] == 0, socket)
        for socket in made:
            counted = socket["counters"]
            expect((counted["tx_bytes"], counted["tx_copied_bytes"]) == (BYTES, BYTES), socket)
            expect(counted["sent_Data"] >= 1 and "rx_bytes" not in counted, socket)
            expect(socket["pace"]["bytes_sent"] == BYTES and socket["pace"]["bytes_received"] == 0, socket)
        expect(len({s["cookie"] for s in served + made}) == 2 * CONNECTIONS, "a cookie of several sockets")
        for socket in served + made:
            expect((socket["state"], socket["family"], socket["uid"]) == ("Established", "inet", 0), socket)
            inode = socket["inode"]
            found = vm.run(f"ls -l /proc/[0-9]*/fd 2>/dev/null | grep -cF 'socket:[{inode}]'").output.strip()
            expect(found == "1", f"inode {inode} is in {found} places")
        ends = {(s["local"]["port"], s["peer"]["port"]) for s in made}
        expect({(peer, local) for local, peer in ends} ==
               {(s["local"]["port"], s["peer"]["port"]) for s in served}, f"{served}\n{made}")
        both = 2 * CONNECTIONS
        for filters, count in (("", both + 2), ("-4", both), ("-6", 2), ("--src 10.0.0.0/8", both),
                               ("--dst fd27::/16", 2), ("--src 10.27.0.99", 0), ("--src fd27::1/128", 2),
                               ("--state established", both + 2), ("--state dead,listen", 0),
                               (f"--dst {address} --dport 7601 -4 --state synchronized", CONNECTIONS),
                               ("--src 0.0.0.0/0", both), ("--process selftest", both + 2),
                               ("--process nobody", 0), ("-tn dport = :7601", CONNECTIONS),
                               ("state established '( sport = :7601 or src fd27::/16 )'", CONNECTIONS + 2),
                               (f"not dst {address} dst != [fd27::1]", 0), ("exclude established", 0)):
            got = sockets(vm, filters)
            expect(len(got) == count, f"{filters}: {len(got)} instead of {count}")
        summary = ask(vm, "ss -s", "summary")
        expect(summary["states"]["Established"] == both + 2, summary)
        expect(summary["total"] == len(sockets(vm, "-a")) == sum(summary["states"].values()), summary)
        wrong = vm.run("sdpctl ss sport = :http 2>&1")
        expect(wrong.rc == 2 and "no port" in wrong.output, f"{wrong.rc} {wrong.output}")
        for socket in sockets(vm, "-p --sport 7601"):
            expect([p["name"] for p in socket["processes"]] == ["selftest"], socket)
        listed = vm.check("tail -n +2 /proc/net/sdp").splitlines()
        expect(len(listed) == len(sockets(vm, "-a")), "\n".join(listed))
        # An unprivileged user sees the same, as with TCP.
        seen = json.loads(vm.check("busybox su nobody -s /bin/sh -c 'sdpctl --json ss'"))["sockets"]
        expect(len(seen) == both + 2, f"{len(seen)} for an ordinary user")
        text = vm.check("sdpctl ss -eipH --sport 7601").splitlines()
        expect(len(text) == 5 * CONNECTIONS and "\x1b" not in "".join(text), "\n".join(text))
        expect("\x1b[1m" in vm.check("sdpctl --color always ss"), "no colour")
        # User ids are those of the reader's user namespace. A namespace without a mapping does not
        # know root.
        if has_user_namespaces(vm):
            owners = vm.check("busybox unshare -U cat /proc/net/sdp").splitlines()
            place = owners[0].split().index("uid")
            expect({line.split()[place] for line in owners[1:]} == {"65534"}, "\n".join(owners))
        bench.a.check("ip netns add sdpctl")
        expect(vm.check("sdpctl -N sdpctl ss -aH") == "", "another namespace shows our sockets")
        expect(ask(vm, "-N sdpctl stat histograms", "histograms")["connections"] == 0, "or their histograms")
        vm.check("ip netns del sdpctl")


@test(machines=1, core=("stock",))
def stat(bench: Bench) -> None:
    """`sdpctl stat` counts the test's bytes since its own reset."""
    vm = bench.a
    shown = ask(vm, "stat --absolute --zeros")["counters"]
    names = [line.split()[0] for line in vm.check("cat /proc/net/sdpstats").splitlines()]
    expect(sorted(shown) == sorted(names), f"not the names of /proc/net/sdpstats: {sorted(set(shown) ^ set(names))}")
    meanings = ask(vm, "stat --absolute --zeros -e")["meanings"]
    expect(sorted(meanings) == sorted(names) and all(meanings.values()), f"not each has words: {meanings}")
    printed = [line.split()[0] for line in vm.check("sdpctl stat --absolute --zeros").splitlines()]
    expect(printed == names, "not the order of /proc/net/sdpstats")
    before = bench.stats(vm)
    vm.check("sdpctl stat reset")
    with Connections(bench, 7603):
        wait_for(lambda: ask(vm, "stat rx_bytes")["counters"].get("rx_bytes") == CONNECTIONS * BYTES,
                 bench.limit(20), f"{ask(vm, 'stat')}")
        report = ask(vm, "stat show --zeros")
        counted = report["counters"]
        for name, value in (("tx_bytes", CONNECTIONS * BYTES), ("tx_copied_bytes", CONNECTIONS * BYTES),
                            ("rx_copied_bytes", 0), ("accepted", CONNECTIONS), ("connect_done", CONNECTIONS)):
            expect(counted[name] == value, f"{name} is {counted[name]} instead of {value}")
        expect(report["reset_at_unix_s"] is not None, report)
        # The module's counters are not reset.
        total = ask(vm, "stat --absolute --zeros")["counters"]
        expect(total["tx_bytes"] == before["tx_bytes"] + CONNECTIONS * BYTES, total["tx_bytes"])
        # One send per connection, and no advert: an idle peer has sent nothing.
        shown = ask(vm, "stat histograms", "histograms")
        expect(shown["connections"] == 2 * CONNECTIONS, shown)
        expect(shown["histograms"] == {"send_bytes": [{"least": 1024, "count": CONNECTIONS}], "advert_us": []}, shown)
        text = vm.check("sdpctl stat histograms").splitlines()
        expect(text[1].split() == ["1K", "to", "less", "than", "2K", str(CONNECTIONS), 40 * "#"], "\n".join(text))
        refused = vm.run("busybox su nobody -s /bin/sh -c 'sdpctl stat histograms'")
        expect(refused.rc == 4 and "only root" in refused.output, f"{refused.rc} {refused.output}")
    look = ask(vm, "stat watch -i 0.2 -c 1 --", "watch")
    expect(look["seconds"] >= 0.2, look)
    bench.unload(vm)
    bench.load(vm)
    # After a reload of the module the old reset does not apply to the counters.
    expect(ask(vm, "stat")["reset_at_unix_s"] is None, "the reset has outlived the module")


@test(machines=1, core=("stock",))
def counters_of_connections(bench: Bench) -> None:
    """The counters of varied connections add up to the counters of their namespace."""
    vm, count, size = bench.a, 3, bench.amount(3 << 20)
    bench.unload(vm)
    vm.check(f"modprobe ib_sdp {BY_ADVERTS} sdp_recv_early=all")
    command = f"sleep 1000 | exec selftest stream --family sdp --conns {count} --bytes {size} --hold"
    jobs = [vm.spawn(f"{command} --{role} {bench.address(vm)}:7609") for role in ("listen", "connect")]
    try:
        for job in jobs:
            wait_for(functools.partial(job.says, "byte-check"), bench.limit(60), job)

        def differing() -> dict[str, tuple[int, int]]:
            """The counters whose sums differ."""
            summed: dict[str, int] = {}
            for socket in (shown := sockets(vm)):
                for name, n in socket["counters"].items():
                    summed[name] = summed.get(name, 0) + n
            expect(len(shown) == 2 * count, f"{len(shown)} sockets")
            stats = bench.stats(vm)
            kept = [name for name in stats if name in summed or name.startswith(("sent_", "received_", "by_copy_"))]
            return {name: (summed.get(name, 0), stats[name]) for name in kept if summed.get(name, 0) != stats[name]}
        header = 8

        def sent_of(socket: Socket) -> tuple[int, int]:
            """Bytes sent, and bytes to send."""
            n = socket["counters"]
            to_send = size + (header if socket["peer"]["port"] == 7609 else 0)
            return n.get("tx_bytes", 0) + n.get("tx_zcopy_bytes", 0), to_send

        def at_rest(socket: Socket) -> bool:
            """Senders learn of completed Reads and Writes some time after the last byte."""
            n = socket["counters"]
            sent, total = sent_of(socket)
            return sent >= total and n.get("advert_posted") == n.get("advert_consumed")
        wait_for(lambda: all(at_rest(s) for s in sockets(vm)), bench.limit(20), f"not all is counted: {sockets(vm)}")
        wait_for(lambda: not differing(), bench.limit(20),
                 f"sums of the connections, and of the namespace: {differing()}")
        for socket in sockets(vm):
            n = socket["counters"]
            sent, total = sent_of(socket)
            expect(sent == total, f"{sent} bytes sent instead of {total}: {n}")
            got = size + header - (total - size)
            expect(n["rx_bytes"] == got, f"{n['rx_bytes']} bytes received instead of {got}: {n}")
            # A sender whose peer always had a reader waiting needs no advert.
            expect(n.get("advert_posted") == n.get("advert_consumed") == n.get("sent_SrcAvail"), n)
            copied = n["rx_copied_bytes"] + n.get("rx_zcopy_bytes", 0) + n.get("sink_received_bytes", 0)
            expect(copied == got, f"{copied} bytes given to the program instead of {got}: {n}")
        expect(any(s["counters"].get("snapshot_freed") for s in sockets(vm)), "no pages of asynchronous sends")
    finally:
        for job in jobs:
            job.kill()
        bench.unload(vm)
        bench.load(vm)


@test(machines=1, core=("stock",))
def faults(bench: Bench) -> None:
    """As many faults as the program takes, which writes to pages that its peer has not read."""
    vm, address = bench.a, f"{bench.address(bench.a)}:7610"
    count, size, overwritten = 2, 1 << 20, 5
    pages = count * size // 4096
    # The kernel reads a little ahead even if no program reads.
    vm.check("sdpctl set zcopy_mode=async rmem_default=64K")
    hold = f"sleep 1000 | exec selftest idle --family sdp --conns {count}"
    jobs: list[Job] = []
    try:
        vm.check("sdpctl stat reset")
        jobs.append(vm.spawn(f"{hold} --listen {address}"))
        jobs.append(vm.spawn(f"{hold} --connect {address} --bytes {size} --overwrite {overwritten}"))
        for job in jobs:
            wait_for(functools.partial(job.says, "open"), bench.limit(30), job)
        for socket in sockets(vm, "--dport 7610"):
            counted = socket["counters"]
            expect((counted["advert_posted"], counted["advert_async"]) == (1, 1), socket)
            left = size - counted.get("tx_zcopy_bytes", 0)
            expect(socket["mode"] == "async" and socket["send_queue"] == left > size // 2, socket)
        expect("pages_touched" not in ask(vm, "stat")["counters"], "pages are counted that are still in flight")
        # The receiver ends: memory that it has not read is released.
        jobs[0].kill()
        wait_for(lambda: ask(vm, "stat")["counters"].get("snapshot_freed") == pages, bench.limit(20), ask(vm, "stat"))
        counted = ask(vm, "stat")["counters"]
        expect((counted["snapshot_pages"], counted["pages_touched"]) == (pages, count * overwritten), counted)
    finally:
        for job in jobs:
            job.kill()
        bench.settle(vm)
        bench.unload(vm)
        bench.load(vm)


@test(machines=1, core=("stock",))
def dev(bench: Bench) -> None:
    port = ask(bench.a, "dev")["devices"][0]["ports"][0]
    expect(port["usable"] and port["netdev"] == "eth0" and port["state"] == "ACTIVE", port)
    expect("::ffff:10.27.0.1" in [gid["gid"] for gid in port["gids"]], port)


@test(machines=1, adapter="siw", core=("stock",))
def dev_and_check_over_iwarp(bench: Bench) -> None:
    vm, address = bench.a, bench.address(bench.a)
    (device,) = ask(vm, "dev")["devices"]
    (port,) = device["ports"]
    expect(device["node_type"] == "RNIC" and port["usable"] and port["netdev"] == "eth0", device)
    expect({gid["type"] for gid in port["gids"]} == {"iWARP"}, port)
    expect(set(steps(ask(vm, "check")).values()) == {"ok"}, "a step fails without a peer")
    for host in (address, "127.0.0.1"):
        refused = ask(vm, f"check {host}:7620", status=1)
        expect(steps(refused)["peer"] == "failed", refused)
        # iWARP uses the ports of TCP, so nothing is said about a TCP server.
        expect("TCP port" not in refused["steps"][-1]["found"], refused)
        server = vm.spawn(f"exec selftest stream --family sdp --listen {host}:7620 --conns 1 --bytes 1 --seed 1")
        wait_for(lambda: sockets(vm, "-l --sport 7620"), bench.limit(20), server)
        found = ask(vm, f"check {host}:7620")
        expect(set(steps(found).values()) == {"ok"}, found)
        server.kill()
        wait_for(lambda: not sockets(vm, "-a --sport 7620"), bench.limit(20), "the listener stays")


@test(machines=1, breaks=True, core=("stock",))
def loopback_needs_an_address(bench: Bench) -> None:
    """Connections to loopback addresses go over an IPv4 or an IPv6 address of an RDMA device, also behind many
    other interfaces, and `check` says if there is none."""
    vm = bench.a
    server = vm.spawn("exec python3 -c '" + SERVER.format(host="127.0.0.1", port=7621, protocol=IPPROTO_SDP) + "'")
    wait_for(lambda: server.says("listens"), bench.limit(20), server)
    expect(steps(ask(vm, "check 127.0.0.1:7621"))["peer"] == "ok", "by the address of eth0")
    vm.check("for i in $(seq 40); do ip link add d$i type dummy; ip address add 10.99.$i.1/24 dev d$i; done")
    vm.check("ip link add last type dummy; ip address add 10.98.0.1/24 dev last; ip link set last up; "
             "rdma link add rxe9 type rxe netdev last; ip address flush dev eth0 scope global")
    expect(steps(ask(vm, "check 127.0.0.1:7621"))["peer"] == "ok", "by IPv4, behind many interfaces")
    vm.check("ip -6 address add fd98::1/64 dev last nodad; ip -4 address flush dev last")
    expect(steps(ask(vm, "check 127.0.0.1:7621"))["peer"] == "ok", "by IPv6")
    vm.check("ip -6 address flush dev last scope global")
    without = ask(vm, "check 127.0.0.1:7621", status=1)
    expect(steps(without)["route"] == "failed" and steps(without)["peer"] == "failed", without)
    expect("No such device" in without["steps"][-1]["found"], without)
    # The machine must be able to unload the module.
    server.kill()


def steps(report: Json) -> dict[str, str]:
    return {step["name"]: step["status"] for step in report["steps"]}


@test(core=("stock",))
def check(bench: Bench) -> None:
    """Each step fails when its cause is present and changes the exit status."""
    vm, there = bench.a, bench.address(bench.b)
    good = ask(vm, "check")
    expect(set(steps(good).values()) == {"ok"}, good)
    refused = ask(vm, f"check {there}:7604", status=1)
    expect(steps(refused)["peer"] == "failed" and steps(refused)["route"] == "ok", refused)
    expect("its TCP port refuses connections" in refused["steps"][-1]["found"], refused)
    server = bench.stream(bench.b, "listen", 7604)
    wait_for(lambda: sockets(bench.b, "-l --sport 7604"), bench.limit(20), "nobody listens")
    found = ask(vm, f"check {there}:7604")
    expect(set(steps(found).values()) == {"ok"} and len(found["steps"]) == 9, found)
    expect(found["steps"][-1]["found"] == f"{there}:7604 takes connections by SDP; its TCP port refuses connections",
           found)
    server.kill()
    # The limit applies to users without CAP_IPC_LOCK in the initial user namespace.
    nobody = "busybox su nobody -s /bin/sh -c"
    look = "sdpctl --json check"
    looks = [(look, "ok"), (f"{nobody} '{look}'", "warning")]
    if has_user_namespaces(vm):
        looks.append((f"busybox unshare -Ur {look}", "warning"))
    for command, limits in looks:
        low = vm.run(f"ulimit -l 64; {command}")
        expect(low.rc == 0 and steps(json.loads(low.output))["limits"] == limits, f"{command}: {low.output}")
    for peer in ("10.27.0.1", "no.such.host.invalid:1"):
        expect(steps(ask(vm, f"check {peer}", status=1))["address"] == "failed", peer)
    bench.unload(vm)
    expect(steps(ask(vm, "check", status=3)) == {"module": "failed"}, "a check without the module")
    for arguments in ("ss", "stat", "stat reset", "stat watch"):
        result = vm.run(f"sdpctl {arguments}")
        expect(result.rc == 3 and "modprobe ib_sdp" in result.output, f"{arguments}: {result.output}")
    bench.load(vm)
    expect(vm.run("sdpctl -N none ss").rc == 1, "a namespace that there is not")


SERVER = """
import socket
server = socket.socket(2, 1, {protocol})
server.setsockopt(1, socket.SO_REUSEADDR, 1)
server.bind(("{host}", {port}))
server.listen()
print("listens", flush=True)
while True:
    print("accepted", server.accept()[1][0], flush=True)
"""


@contextlib.contextmanager
def server_of(bench: Bench, vm: Vm, port: int, protocol: int = IPPROTO_TCP) -> Iterator[Job]:
    """A server that listens with one kind of sockets only, and prints a line for each connection, which it closes."""
    program = SERVER.format(host=bench.address(vm), port=port, protocol=protocol)
    server = vm.spawn(f"exec python3 -c '{program}'")
    try:
        wait_for(lambda: server.says("listens"), bench.limit(20), server)
        yield server
    finally:
        server.kill()


@test(core=("stock",))
def check_of_a_tcp_server(bench: Bench) -> None:
    """A server that listens with TCP only is named, and so is one that listens with both."""
    vm, there = bench.a, f"{bench.address(bench.b)}:7619"
    with server_of(bench, bench.b, 7619) as tcp:
        report = ask(vm, f"check {there}", status=1)
        peer = report["steps"][-1]
        expect("refused" in peer["found"] and "its TCP port takes connections" in peer["found"]
               and "listens with TCP only" in peer["advice"], report)
        wait_for(lambda: tcp.says(f"accepted {bench.address(vm)}"), bench.limit(20), tcp)
        with server_of(bench, bench.b, 7619, IPPROTO_SDP):
            both = ask(vm, f"check {there}")
        expect(both["steps"][-1]["found"] == f"{there} takes connections by SDP and by TCP", both)


@test(machines=1)
def bad_requests(bench: Bench) -> None:
    """The module refuses unknown requests and gives a reason where it is not obvious."""
    vm = bench.a
    for request, why in (("1 1=00", ""), ("3 1=00", ""), ("2 2=05", ""), ("2 8=00000000", ""), ("2 99=00", ""),
                         ("2 30=00000080", ""), ("2 30=00", ""), ("2 31=81 3=0a1b0001", ""), ("2 4=0000000000", ""),
                         ("2 1=0100", "the family is AF_INET or AF_INET6"),
                         ("2 3=0a1b00", "an address has 4 or 16 bytes"),
                         ("2 3=" + 17 * "00", ""), ("2 3=", "an address has 4 or 16 bytes"),
                         ("2 31=21 3=0a1b0001", "an IPv4 address has 32 bits"),
                         ("2 32=00", "a prefix length without an address"),
                         ("7 2=05", ""), ("7 1=0100", "the family is AF_INET or AF_INET6")):
        result = vm.run(f"sdpctl raw {request}")
        expect(result.rc == 1 and why in result.output, f"{request}: {result.rc} {result.output}")
    for number in (0, 4, 5, 6, 8, 255):
        expect(vm.run(f"sdpctl raw {number}").rc != 0, f"command {number}")
    for request in ("1", "2", "3", "7", "2 30=ff1f0000 1=0200 31=08 3=0a000000 32=00 5=" + 16 * "00"):
        expect(vm.run(f"sdpctl raw {request}").ok, request)


@test(machines=1, core=("stock",))
def events(bench: Bench) -> None:
    """One event when an end of a connection is established, one when it is closed, and one for a refusal."""
    vm, address = bench.a, bench.address(bench.a)
    count = 10
    watcher = vm.spawn("exec sdpctl --json events")
    wait_for(lambda: "listening" in watcher.lines, bench.limit(20), watcher)
    server = vm.spawn(f"exec selftest connect-rate --family sdp --listen {address}:7607 --conns {count}")
    client = vm.spawn(f"exec selftest connect-rate --family sdp --connect {address}:7607 --conns {count}")
    bench.succeed(client, 60)
    bench.succeed(server, 20)
    expect(vm.run(f"sdpctl check {address}:7608").rc == 1, "somebody listens at port 7608")

    def seen(name: str, port: int) -> list[Json]:
        told = [json.loads(line) for line in watcher.lines if line.startswith("{")]
        for event in told:
            validate(event, "event", load())
        return [e for e in told if e["event"] == name and port in (e["local"]["port"], e["peer"]["port"])]
    # The watcher prints events some time after they happened.
    wait_for(lambda: len(seen("closed", 7607)) == 2 * count and seen("failed", 7608), bench.limit(30), watcher)
    # The client has retried until the server listened.
    expect(len(seen("established", 7607)) == 2 * count, watcher.output)
    refused = seen("failed", 7608)
    expect([(e["error"], e["cause"], e["refusal"]) for e in refused] == [(111, "ConnectRefused", "NoListener")],
           watcher.output)
    # Orphans have no inode and are identified by their cookies: each socket was established once
    # and closed once.
    cookies = {name: sorted(e["cookie"] for e in seen(name, 7607)) for name in ("established", "closed")}
    expect(cookies["established"] == cookies["closed"], watcher.output)
    expect(len(set(cookies["closed"])) == 2 * count, watcher.output)
    for end in ("local", "peer"):
        served = [e for e in seen("established", 7607) if e[end] == {"address": address, "port": 7607}]
        expect(len(served) == count, watcher.output)
    watcher.kill()


@test(machines=1, core=("stock",))
def events_end_with_the_module(bench: Bench) -> None:
    """Without the module there are no more events: the watcher says so and ends."""
    vm = bench.a
    watcher = vm.spawn("exec sdpctl events 2>&1")
    try:
        wait_for(lambda: watcher.says("listening"), bench.limit(20), watcher)
        bench.unload(vm)
        try:
            status = watcher.wait(bench.limit(20))
            expect(status == 3 and "unloaded" in watcher.output, f"{status} {watcher.output}")
        finally:
            bench.load(vm)
    finally:
        watcher.kill()


@test(core=("stock",))
def events_of_the_other_kind(bench: Bench) -> None:
    """A server that listens with TCP only refuses a connection by SDP: the event says so, and also whether the
    socket becomes a TCP socket."""
    vm, there = bench.a, bench.address(bench.b)
    watcher = vm.spawn("exec sdpctl --json events --probe-tcp")
    wait_for(lambda: "listening" in watcher.lines, bench.limit(20), watcher)

    def client(port: int) -> str:
        return f"python3 -c 'import socket; socket.socket(2, 1, {IPPROTO_SDP}).connect((\"{there}\", {port}))'"

    def refused(port: int) -> list[tuple[bool, str | None]]:
        told = [json.loads(line) for line in watcher.lines if line.startswith("{")]
        for event in told:
            validate(event, "event", load())
        return [(e["tcp_fallback"], e["tcp_port"]) for e in told
                if (e["event"], e["error"]) == ("failed", errno.ECONNREFUSED) and e["peer"]["port"] == port]
    with server_of(bench, bench.b, 7620):
        expect(not vm.run(client(7620)).ok, "a connection by SDP to a TCP server")
        wait_for(lambda: refused(7620) == [(False, "accepts")], bench.limit(20), watcher)
        vm.check("sdpctl set tcp_fallback=1")
        try:
            vm.check(client(7620))
        finally:
            vm.check("sdpctl set tcp_fallback=0")
        wait_for(lambda: refused(7620) == [(False, "accepts"), (True, "accepts")], bench.limit(20), watcher)
    expect(not vm.run(client(7621)).ok, "a connection to nobody")
    wait_for(lambda: refused(7621) == [(False, "refuses")], bench.limit(20), watcher)
    watcher.kill()


@test(machines=1, core=("debug",))
def dump_while_connections_come_and_go(bench: Bench) -> None:
    """Neither dumps nor files nor connections fail. A lasting connection is in each dump exactly once."""
    vm = bench.a
    count = bench.amount(1000)
    address = f"{bench.address(vm)}:7606"
    with Connections(bench, 7605, 40):
        inodes = sorted(s["inode"] for s in sockets(vm) if 7605 in (s["local"]["port"], s["peer"]["port"]))
        expect(len(inodes) == 80, len(inodes))
        server = vm.spawn(f"exec selftest connect-rate --family sdp --listen {address} --conns {count}")
        client = vm.spawn(f"exec selftest connect-rate --family sdp --connect {address} --conns {count}")
        dumps = 0
        while client.wait(0) is None:
            seen = sorted(s["inode"] for s in sockets(vm, "-a") if s["inode"] in inodes)
            expect(seen == inodes, f"{len(seen)} of {len(inodes)}")
            vm.check("cat /proc/net/sdp /proc/net/sdpstats >/dev/null && sdpctl stat >/dev/null")
            dumps += 1
        bench.succeed(client, 200)
        bench.succeed(server, 20)
        expect(dumps > 0, "no dump meanwhile")
