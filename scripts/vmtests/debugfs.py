# SPDX-License-Identifier: GPL-2.0
"""Per-connection folders in debugfs: their contents, and that readers do not block connections."""

import functools
import re
from typing import NamedTuple

from vmlib.bench import BY_ADVERTS, Bench, expect, test, wait_for
from vmlib.machine import Vm

from .sdpctl import BYTES, CONNECTIONS, Connections, sockets

ROOT = "/sys/kernel/debug/ib_sdp"


class Advert(NamedTuple):
    """A line of the file `state`: the kind of advert, its bytes, the bytes read so far, and its age."""

    kind: str
    length: int
    read: int
    age: int


def state(vm: Vm, cookie: int) -> tuple[dict[str, str], list[Advert], dict[str, dict[int, int]]]:
    """Parses the file `state`: single values by name, adverts and histograms."""
    values: dict[str, str] = {}
    adverts: list[Advert] = []
    histograms: dict[str, dict[int, int]] = {}
    for line in vm.check(f"cat {ROOT}/{cookie}/state").splitlines():
        name, *rest = line.split()
        if name == "advert":
            adverts.append(Advert(rest[0], *(int(word.split("=")[1]) for word in rest[1:])))
        elif name == "histogram":
            histograms.setdefault(rest[0], {})[int(rest[1])] = int(rest[2])
        else:
            values[name] = rest[0]
    return values, adverts, histograms


def folders(vm: Vm) -> list[int]:
    """The connections' folders. `ls` would fail: it looks up each name again, and the folder may be gone by
    then."""
    return sorted(int(name) for name in vm.check(f"cd {ROOT} && echo *").split() if name != "devices")


@test(machines=1)
def devices(bench: Bench) -> None:
    """Each adapter has a file with its capabilities. The file is removed and renamed with the adapter."""
    vm = bench.a

    def names() -> list[str]:
        return vm.check(f"ls {ROOT}/devices").split()
    lines = vm.check(f"cat {ROOT}/devices/rxe0").splitlines()
    for line in ("soft_roce yes", "registers yes", "connections yes", "port 1 active", "port 1 mtu 4096",
                 "port 1 iwarp no", "port 1 zero_copy 256 pages"):
        expect(line in lines, "\n".join(lines))
    vm.check("ip link add sdp9 type dummy && ip link set sdp9 up && rdma link add rxe9 type rxe netdev sdp9")
    try:
        expect(names() == ["rxe0", "rxe9"], names())
        vm.check("rdma dev set rxe9 name other9")
        expect(names() == ["other9", "rxe0"], names())
        text = vm.check(f"cat {ROOT}/devices/other9")
        expect("port 1 zero_copy 256 pages" in text, text)
        # An open file does not delay the removal; reading it fails afterwards.
        held = f"exec 5<{ROOT}/devices/other9; rdma link delete other9; ! cat <&5"
        expect(vm.run(held, bench.limit(20)).ok, "the file of a device that has gone can be read")
    finally:
        vm.run("rdma link delete other9 || rdma link delete rxe9; ip link delete sdp9")
    expect(names() == ["rxe0"], names())
    # Open files either keep the module loaded or fail on access.
    vm.check(f"sh -c 'exec 5<{ROOT}/devices/rxe0; ! rmmod ib_sdp'")
    bench.unload(vm)
    bench.load(vm)
    expect(names() == ["rxe0"], names())


@test(machines=1)
def connections(bench: Bench) -> None:
    """Each connection has a folder that agrees with sdpctl. The folder is removed with the connection."""
    vm = bench.a
    with Connections(bench, 7801):
        shown = {s["cookie"]: s for s in sockets(vm)}
        expect(len(shown) == 10 and folders(vm) == sorted(shown), f"{folders(vm)}, sockets {sorted(shown)}")

        def at_rest() -> bool:
            """Bytes are sent some time after the call and arrive later."""
            now = sockets(vm)
            return not any(s["send_queue"] for s in now) and sum(s["recv_queue"] for s in now) == CONNECTIONS * BYTES
        wait_for(at_rest, bench.limit(20), "bytes stay in their queues")
        for cookie, socket in {s["cookie"]: s for s in sockets(vm)}.items():
            values, adverts, histograms = state(vm, cookie)
            for ours, theirs in (("state", socket["state"]), ("mode", socket["mode"]), ("credits", socket["credits"]),
                                 ("inode", socket["inode"]), ("tx_queue", socket["send_queue"]),
                                 ("rx_queue", socket["recv_queue"]), ("netns", socket["netns_cookie"])):
                expect(values[ours] == str(theirs), f"{ours}: {values}\n{socket}")
            expect(values["receives_posted"] == f"{socket['receives_posted']}x{socket['receive_bytes']}", values)
            for name, n in socket["counters"].items():
                expect(int(values[name]) == n, f"{name}: {values}\n{socket}")
            sent = socket["counters"].get("tx_bytes", 0)
            # One call of send(), of 1235 bytes.
            expect(histograms == ({"send_bytes": {1024: 1}} if sent else {}) and not adverts, histograms)
        modes = vm.check(f"stat -c %a {ROOT}/*/state {ROOT}/*/messages").split()
        expect(modes == 10 * ["400"] + 10 * ["600"], modes)
        expect(vm.run(f"busybox su nobody -s /bin/sh -c 'ls {ROOT}'").rc != 0, "everybody may look")
    wait_for(lambda: not folders(vm), bench.limit(30), "folders stay")


@test(machines=1)
def adverts(bench: Bench) -> None:
    """Unread adverts are shown with their age, read ones in the histogram."""
    vm, address = bench.a, bench.address(bench.a)
    bench.unload(vm)
    vm.check(f"modprobe ib_sdp {BY_ADVERTS}")
    hold = "sleep 1000 | exec selftest idle --family sdp"
    # More than the reader's buffer holds, and less than both buffers hold.
    jobs = [vm.spawn(f"{hold} --listen {address}:7802 --conns 1"),
            vm.spawn(f"{hold} --connect {address}:7802 --conns 1 --bytes {3 << 20}")]
    try:
        for job in jobs:
            wait_for(functools.partial(job.says, "open"), bench.limit(30), job)
        [sender] = sockets(vm, "--dport 7802")
        [reader] = sockets(vm, "--sport 7802")

        seen: list[tuple[str, list[Advert]]] = []

        def rests() -> object:
            seen.append((state(vm, reader["cookie"])[0]["rx_queue"], state(vm, sender["cookie"])[1]))
            kept = [(queue, [a[:3] for a in out]) for queue, out in seen[-3:]]
            # A slow machine may pause before the buffers are full.
            return len(kept) == 3 and kept[0] == kept[1] == kept[2] and kept[0][1] and int(kept[0][0]) > 3 << 19
        wait_for(rests, bench.limit(30), "the reader's buffer does not fill")
        values, out, histograms = state(vm, sender["cookie"])
        left = sum(length - read for _, length, read, _ in out)
        expect(out and {kind for kind, *_ in out} == {"source-async"}, out)
        expect(left == int(values["tx_queue"]), f"{out}\n{values}")
        ages = [age for *_, age in out]
        expect(ages == sorted(ages, reverse=True) and ages[-1] > 0, out)
        later = state(vm, sender["cookie"])[1]
        expect(later[0][3] > out[0][3], f"{out} then {later}")
        expect(sum(histograms.get("advert_us", {}).values()) == int(values.get("advert_consumed", 0)), values)
        expect(int(values["advert_posted"]) == len(out) + int(values.get("advert_consumed", 0)), values)
        expect(int(state(vm, reader["cookie"])[0]["peer_advert_unread"]) > 0, "the reader has read all")
    finally:
        for job in jobs:
            job.kill()
        bench.unload(vm)
        bench.load(vm)


MESSAGE = re.compile(
    r"^\d+\.\d{6} (sent|received) (\w+) mseq=(\d+) mseq_ack=(\d+) bufs=(\d+) payload=(\d+) credits=(\d+)$")


@test(machines=1)
def messages(bench: Bench) -> None:
    """The last 256 messages are kept once a write to the file has started the record."""
    vm, size = bench.a, (24 if bench.kind == "debug" else 48) << 20
    stream = f"exec selftest stream --family sdp --bytes {size} --max 20000"
    server = vm.spawn(f"sleep 1000 | {stream} --hold --conns 2 --listen {bench.address(vm)}:7803")
    client = f"sleep 1000 | {stream} --hold --conns 1 --connect {bench.address(vm)}:7803"
    jobs = [server, vm.spawn(client)]
    try:
        # The server starts to echo when the second client connects; until then the first client
        # fills the buffers.
        wait_for(lambda: len(folders(vm)) == 2, bench.limit(30), server)
        asked = folders(vm)
        vm.check(f"for f in {ROOT}/*/messages; do echo 1 >$f; done")
        jobs.append(vm.spawn(client))
        for job in jobs:
            wait_for(functools.partial(job.says, "byte-check"), bench.limit(120), job)
        expect(len(folders(vm)) == 4, folders(vm))

        def differing(cookie: int) -> dict[str, tuple[int | None, int]]:
            """For each direction, the number of the last message and the counters' total, if they differ."""
            told = [m for m in map(MESSAGE.match, vm.check(f"cat {ROOT}/{cookie}/messages").splitlines()) if m]
            counters = next(s for s in sockets(vm) if s["cookie"] == cookie)["counters"]
            found: dict[str, tuple[int | None, int]] = {}
            for way in ("sent", "received"):
                last = max((int(m[3]) for m in told if m[1] == way), default=None)
                # The first message of a direction has the number 1.
                total = sum(n for name, n in counters.items() if name.startswith(f"{way}_"))
                if last != total:
                    found[way] = (last, total)
            return found

        def agrees(cookie: int) -> bool:
            return not differing(cookie)
        for cookie in asked:
            # The last credits may still be in flight.
            wait_for(functools.partial(agrees, cookie), bench.limit(20),
                     f"last numbers, and what is counted: {differing(cookie)}")
            lines = vm.check(f"cat {ROOT}/{cookie}/messages").splitlines()
            told = [m for m in map(MESSAGE.match, lines) if m]
            expect(len(told) == len(lines) == 256, f"{len(lines)} lines\n" + "\n".join(lines[:5]))
            times = [float(line.split()[0]) for line in lines]
            expect(times == sorted(times), lines)
            for way in ("sent", "received"):
                numbers = [int(m[3]) for m in told if m[1] == way]
                expect(numbers == list(range(numbers[0], numbers[0] + len(numbers))), numbers)
        vm.check(f"for f in {ROOT}/*/messages; do echo 0 >$f; done")
        off = vm.check(f"cat {ROOT}/*/messages").splitlines()
        expect(off == 4 * ["off"], off)
        for bad in ("x", "", "2"):
            expect(not vm.run(f"printf '%s\\n' '{bad}' >{ROOT}/{folders(vm)[0]}/messages").ok, f"`{bad}` is taken")
    finally:
        for job in jobs:
            job.kill()


@test(machines=1)
def open_files(bench: Bench) -> None:
    """A file may stay open when its connection ends. It keeps the module loaded and nothing else."""
    vm = bench.a
    with Connections(bench, 7804, 1):
        cookie = folders(vm)[0]
        reader = vm.spawn(f"exec 8<{ROOT}/{cookie}/state 9<>{ROOT}/{cookie}/messages; "
                          "head -n 1 <&8; echo 1 >&9; echo open; while [ ! -e /tmp/ended ]; do sleep 0.1; done; "
                          "cat <&8; echo state $?; echo 1 >&9; echo messages $?; "
                          "while [ ! -e /tmp/go ]; do sleep 0.1; done")
        wait_for(lambda: "open" in reader.lines, bench.limit(20), reader)
        expect("state Established" in reader.lines, reader.output)
    wait_for(lambda: not folders(vm), bench.limit(30), "an open file holds the folder")
    wait_for(lambda: not vm.check("sdpctl ss -aH"), bench.limit(30), "an open file holds the socket")
    vm.check("touch /tmp/ended")
    wait_for(lambda: any(line.startswith("messages ") for line in reader.lines), bench.limit(20), reader)
    expect("state 1" in reader.lines and "messages 1" in reader.lines, reader.output)
    expect(not vm.run("rmmod ib_sdp").ok, "the module goes though a file is open")
    vm.check("touch /tmp/go")
    bench.succeed(reader, 20)
    bench.unload(vm)
    expect(not vm.run(f"[ -e {ROOT} ]").ok, "the folder has outlived the module")
    bench.load(vm)


@test(machines=1, core=("debug",))
def while_connections_come_and_go(bench: Bench) -> None:
    """A program that reads all files all the time blocks no connection and sees no error except that a file has
    gone."""
    vm, count = bench.a, bench.amount(600)
    address = f"{bench.address(vm)}:7805"
    readers = [vm.spawn(f"while [ ! -e /tmp/enough ]; do for d in {ROOT}/*/; do {what}; done 2>/dev/null; done; "
                        "echo done")
               for what in ("cat $d/state >/dev/null", "echo 1 >$d/messages; cat $d/messages >/dev/null",
                            "cat $d/* >/dev/null; echo 0 >$d/messages")]
    with Connections(bench, 7806, 20):
        server = vm.spawn(f"exec selftest connect-rate --family sdp --listen {address} --conns {count}")
        client = vm.spawn(f"exec selftest connect-rate --family sdp --connect {address} --conns {count}")
        bench.succeed(client, 300)
        bench.succeed(server, 20)
        expect(len(folders(vm)) >= 40, folders(vm))
    vm.check("touch /tmp/enough")
    for reader in readers:
        bench.succeed(reader, 30)
        expect(reader.lines[-1] == "done", reader.output)
    wait_for(lambda: not folders(vm), bench.limit(60), "folders stay")
    bench.unload(vm)
    bench.load(vm)
