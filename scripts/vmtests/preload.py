# SPDX-License-Identifier: GPL-2.0
"""sdpctl run: programs written for TCP, checked by the module's counters."""

import contextlib
import re
from collections.abc import Iterator, Mapping

from vmlib.bench import Bench, expect, test, wait_for
from vmlib.machine import Job, Vm
from vmlib.rates import PATIENT
from vmlib.schema import Json
from vmtests.lifecycle import ports_of_kernel
from vmtests.sdpctl import IPPROTO_SDP, ask, server_of
from vmtests.settings import unloaded

NETPERF_PORT = 12865
QPERF_PORT = 19765
# A connection of `selftest stream` sends its number before its own bytes.
NUMBER_BYTES = 8
# A dynamically linked program that reports its start; busybox's own are static.
STARTED = "/bin/sh -c ': >/tmp/started'"


def counted(bench: Bench, vm: Vm, before: Mapping[str, int], **wanted: int) -> None:
    """The counters have grown by exactly these numbers."""
    def grown() -> dict[str, int]:
        after = bench.stats(vm)
        return {name: after[name] - before[name] for name in wanted}
    # A sender learns some time later how much it has written to a reader's memory.
    wait_for(lambda: all(n >= wanted[name] for name, n in grown().items()), bench.limit(20),
             f"{vm.name} counted {grown()}, not {wanted}")
    now = grown()
    expect(now == wanted, f"{vm.name} counted {now}, not {wanted}")


def moved(bench: Bench, before: Mapping[str, int], sent: int) -> int:
    """The bytes that SDP has carried since `before`, once all `sent` bytes are counted."""
    def now() -> int:
        return bench.stats(bench.a)["tx_bytes"] - before["tx_bytes"]
    wait_for(lambda: now() >= sent, bench.limit(20), f"{now()} bytes by SDP of {sent}")
    return now()


@contextlib.contextmanager
def running(bench: Bench, vm: Vm, command: str, port: int, family: str = "sdp") -> Iterator[Job]:
    """A server for the length of the block, started when it listens."""
    job = vm.spawn(f"exec {command}")
    listening = f"sdpctl ss -lH --sport {port} | grep ." if family == "sdp" else f"ss -ltnH sport = :{port} | grep ."
    try:
        wait_for(lambda: vm.run(listening).ok, bench.limit(30), job)
        yield job
    finally:
        job.kill()
        # The next server listens on the same port.
        job.wait(bench.limit(20))


def stream(role: str, address: str, port: int, count: int, size: int) -> str:
    return f"selftest stream --family tcp --{role} {address}:{port} --conns {count} --bytes {size} --seed 5"


@test(core=("stock",))
def every_byte_by_sdp(bench: Bench) -> None:
    """Exact numbers of connections and bytes of a program that opens TCP sockets."""
    count, size, there = 3, 300_007, bench.address(bench.b)
    a, b = bench.stats(bench.a), bench.stats(bench.b)
    server = bench.b.spawn("exec sdpctl run --require -- " + stream("listen", there, 7701, count, size))
    client = bench.a.spawn("exec sdpctl run --require -- " + stream("connect", there, 7701, count, size))
    output = bench.succeed(client, 60)
    expect(f"{count * size} bytes, 0 wrong" in output, output)
    bench.succeed(server, 20)
    counted(bench, bench.a, a, connect_done=count, accepted=0, tx_bytes=count * (size + NUMBER_BYTES),
            rx_bytes=count * size)
    counted(bench, bench.b, b, connect_done=0, accepted=count, tx_bytes=count * size,
            rx_bytes=count * (size + NUMBER_BYTES))


def netperf(bench: Bench, run: str, rules: str = "") -> tuple[int, int]:
    """The bytes that netperf reports for one second, and the size of its sends: the last send is cut off by the
    end of the second and not counted."""
    there = bench.address(bench.b)
    if rules:
        for vm in {bench.a, bench.b}:
            vm.check(f"printf '%s\\n' '{rules}' >/tmp/rules")
        run += " --config /tmp/rules"
    family = "tcp" if rules else "sdp"
    with running(bench, bench.b, f"sdpctl {run} -- netserver -D", NETPERF_PORT, family):
        output = bench.succeed(bench.a.spawn(
            f"exec sdpctl {run} -- netperf -H {there} -t TCP_STREAM -l 1 -P 0 -- "
            "-k LOCAL_BYTES_SENT,LOCAL_SEND_SIZE"), 60)
    said: dict[str, str] = dict(re.findall(r"(LOCAL_\w+)=(\d+)", output))
    expect(int(said.get("LOCAL_BYTES_SENT", 0)) > 0 and "LOCAL_SEND_SIZE" in said, f"netperf says: {output}")
    return int(said["LOCAL_BYTES_SENT"]), int(said["LOCAL_SEND_SIZE"])


@test(core=("stock",))
def netperf_by_sdp(bench: Bench) -> None:
    """Its control connection and its data connection use SDP, and no other."""
    a, b = bench.stats(bench.a), bench.stats(bench.b)
    sent, _ = netperf(bench, "run --require")
    counted(bench, bench.a, a, connect_done=2, accepted=0)
    counted(bench, bench.b, b, accepted=2, connect_done=0)
    by_sdp = moved(bench, a, sent)
    expect(by_sdp > sent, f"{by_sdp} bytes by SDP of {sent}")


@test(core=("stock",))
def rules_decide_by_port(bench: Bench) -> None:
    """The control connection uses TCP, the data connection SDP."""
    a, b = bench.stats(bench.a), bench.stats(bench.b)
    sent, one = netperf(bench, "run --require", f"use tcp * net* *:{NETPERF_PORT}\nuse sdp * net* 10.27.0.0/16:*\n"
                                           "use sdp server netserver 0.0.0.0:*")
    counted(bench, bench.a, a, connect_done=1, accepted=0)
    counted(bench, bench.b, b, accepted=1, connect_done=0)
    by_sdp = moved(bench, a, sent)
    expect(by_sdp - sent <= one, f"{by_sdp} bytes by SDP of {sent}, {one} at a time")
    # No rule matches: everything uses TCP.
    a = bench.stats(bench.a)
    netperf(bench, "run", "use sdp * other *:*")
    counted(bench, bench.a, a, connect_done=0, tx_bytes=0)


@test(core=("stock",))
def qperf_by_sdp(bench: Bench) -> None:
    there = bench.address(bench.b)
    with running(bench, bench.b, "sdpctl run --require -- qperf", QPERF_PORT):
        for name, unit in (("tcp_bw", "bw"), ("tcp_lat", "latency")):
            a = bench.stats(bench.a)
            output = bench.succeed(bench.a.spawn(
                f"exec sdpctl run --require -- qperf {there} {PATIENT} -t 1 {name}"), 60)
            expect(re.search(rf"{unit}\s*=\s*[\d.]+", output), output)
            # One connection for control, one for data.
            counted(bench, bench.a, a, connect_done=2)


@contextlib.contextmanager
def no_loading(bench: Bench) -> Iterator[Vm]:
    """The module is unloaded and cannot be loaded on demand: otherwise a socket of the family loads it."""
    path = bench.a.check("cat /proc/sys/kernel/modprobe")
    with unloaded(bench) as vm:
        vm.check("echo /bin/false >/proc/sys/kernel/modprobe")
        try:
            yield vm
        finally:
            vm.check(f"echo {path} >/proc/sys/kernel/modprobe")


@test(machines=1, core=("stock",))
def falls_back_or_not(bench: Bench) -> None:
    """Without the module: TCP carries the data, or the program does not start."""
    here = bench.address(bench.a)
    with no_loading(bench) as vm:
        refused = vm.run(f"sdpctl run --require -- {STARTED} 2>&1")
        expect(refused.rc == 3 and "modprobe ib_sdp" in refused.output, f"{refused.rc} {refused.output}")
        expect(not vm.run("rm /tmp/started").ok, "the program was started")
        server = vm.spawn("exec sdpctl run -- " + stream("listen", here, 7702, 2, 100_003))
        client = vm.spawn("exec sdpctl run -v -- " + stream("connect", here, 7702, 2, 100_003))
        output = bench.succeed(client, 60)
        expect("200006 bytes, 0 wrong" in output and "it will use TCP" in output, output)
        expect(f"has to connect to {here}:7702 by TCP" in output, output)
        bench.succeed(server, 20)
        expect(not vm.run("grep -q ib_sdp /proc/modules").ok, "the module was loaded")
        # The library alone, as in a program that was started by another one while the module was
        # loaded.
        failed = vm.run("SDPCTL_REQUIRE=1 LD_PRELOAD=/usr/lib/sdpctl/libsdp.so " + stream("listen", here, 7703, 1, 1))
        expect(failed.rc != 0 and "os error 97" in failed.output, f"{failed.rc} {failed.output}")


@test(machines=1, core=("stock",))
def forbidden_by_a_filter(bench: Bench) -> None:
    """If a filter forbids sockets of SDP, sdpctl says so, and not that the module is not loaded."""
    # As with RestrictAddressFamilies= of systemd.
    refuse = "strace -e trace=socket -e inject=socket:error=EAFNOSUPPORT"
    said = bench.a.run(f"{refuse} sdpctl run --require -- {STARTED} 2>&1")
    expect(said.rc == 1 and "RestrictAddressFamilies" in said.output, f"{said.rc} {said.output}")
    expect(not bench.a.run("rm /tmp/started").ok, "the program was started")


@test(machines=1, core=("stock",))
def listens_in_another_root(bench: Bench) -> None:
    """A server without access to /sys at listen(), like FTP servers in a chroot, uses SDP."""
    vm, here = bench.a, bench.address(bench.a)
    before = bench.stats(vm)
    vm.check("mkdir -p /tmp/root")
    server = "sdpctl run --require -- " + stream("listen", here, 7706, 1, 1000) + " --chroot /tmp/root"
    with running(bench, vm, server, 7706):
        client = vm.spawn("exec sdpctl run --require -- " + stream("connect", here, 7706, 1, 1000))
        output = bench.succeed(client, 60)
        expect("1000 bytes, 0 wrong" in output, output)
    counted(bench, vm, before, connect_done=1, accepted=1)


@test(machines=1, core=("stock",))
def programs_that_cannot_be_helped(bench: Bench) -> None:
    """Statically linked and set-user-ID programs: sdpctl reports that it has no effect on them."""
    vm = bench.a
    for require, status in (("", 0), ("--require", 1)):
        said = vm.run(f"sdpctl run {require} -- busybox true 2>&1")
        expect(said.rc == status and "statically linked" in said.output, f"{said.rc} {said.output}")
    vm.check("cp -L $(which strace) /tmp/privileged && chmod 4755 /tmp/privileged")
    said = vm.run("busybox su nobody -s /bin/sh -c 'sdpctl run --require -- /tmp/privileged -V' 2>&1")
    expect(said.rc == 1 and "set-user-ID" in said.output, f"{said.rc} {said.output}")
    vm.check("rm /tmp/privileged")
    for command, status, words in (("/no/such/program", 127, "command not found"),
                                   ("no-such-program", 127, "command not found"),
                                   ("/etc/passwd", 126, "ermission denied")):
        said = vm.run(f"sdpctl run -- {command} 2>&1")
        expect(said.rc == status and f"{command}: " in said.output and words in said.output,
               f"{command}: {said.rc} {said.output}")
    # The program's exit status, arguments and environment are kept.
    said = vm.run("X=y sdpctl run -- sh -c 'echo $0 $1 $X; exit 42' -a --require")
    expect((said.rc, said.output) == (42, "-a --require y"), f"{said.rc} {said.output}")


@test(machines=1, core=("stock",))
def keeps_sigpipe(bench: Bench) -> None:
    """A program that is started with SIGPIPE ignored, as services are, still ignores it."""
    shown = "sdpctl run -- grep SigIgn /proc/self/status"
    for trap, ignored in (("", 0), ("trap '' PIPE; ", 1)):
        said = bench.a.check(trap + shown)
        expect(int(said.split()[-1], 16) >> 12 & 1 == ignored, said)


@test(machines=1, core=("stock",))
def bad_rules_are_refused(bench: Bench) -> None:
    vm = bench.a
    for rules, words in (("use sdp", "line 1: it is not"), ("\n# x\nuse any server * *:*", "line 3: `any`"),
                         ("log min-level 9 destination stderr", "line 1: `log`"),
                         ("use sdp client * *:70000", "line 1: `70000`")):
        said = vm.run(f"printf '%b' '{rules}' >/tmp/rules; sdpctl run --config /tmp/rules -- {STARTED} 2>&1")
        expect(said.rc == 1 and f"/tmp/rules: {words}" in said.output, f"{rules}: {said.rc} {said.output}")
    expect(not vm.run("rm /tmp/started").ok, "the program was started")
    expect(vm.run("sdpctl run --config /no/such -- true").rc == 1, "without its rules")
    expect(vm.run("sdpctl run --library /no/such -- true").rc == 1, "without its library")


@test(machines=1, core=("stock",))
def both_tries_tcp(bench: Bench) -> None:
    """A client with a `both` rule uses TCP where no SDP server listens, and SDP where one does."""
    vm, here = bench.a, bench.address(bench.a)
    vm.check("printf 'use both client * *:*\\n' >/tmp/rules")
    for family, port, done in (("tcp", 7704, 0), ("sdp", 7705, 1)):
        before = bench.stats(vm)
        server = f"selftest stream --family {family} --listen {here}:{port} --conns 1 --bytes 1000 --seed 5"
        with running(bench, vm, server, port, family):
            client = vm.spawn("exec sdpctl run --config /tmp/rules -- " + stream("connect", here, port, 1, 1000))
            output = bench.succeed(client, 60)
            expect("1000 bytes, 0 wrong" in output, output)
        counted(bench, vm, before, connect_done=done)


STAYS = """
import socket, time
s = socket.socket()
s.connect(("{host}", {port}))
time.sleep(1000)
"""


@test(machines=1, core=("stock",))
def shows_what_uses_tcp(bench: Bench) -> None:
    """A connection that falls back to TCP is counted, and listed until its program ends."""
    vm, here, port = bench.a, bench.address(bench.a), 7718
    vm.check("printf 'use both client * *:*\\n' >/tmp/rules")

    def listed() -> list[Json]:
        sockets: list[Json] = ask(vm, f"ss -p --dport {port}")["sockets"]
        return sockets
    before = bench.stats(vm)
    program = STAYS.format(host=here, port=port)
    with server_of(bench, vm, port):
        client = vm.spawn(f"exec sdpctl run --config /tmp/rules -- python3 -c '{program}'")
        try:
            wait_for(lambda: bool(listed()), bench.limit(20), client)
            [socket] = listed()
            expect(socket["options"] == ["tcp-fallback"] and socket["error"] == 111
                   and socket["peer"] == {"address": here, "port": port}
                   and [p["name"] for p in socket["processes"]] == ["python3"], socket)
            counted(bench, vm, before, connect_fell_back=1, connect_done=0)
            line = vm.check(f"sdpctl ss -H --dport {port}")
            expect(re.fullmatch(rf"TCP .* {re.escape(here)}:{port}\s*", line), line)
            expect(not vm.check(f"sdpctl ss -H --sport {port}"), "the other end is listed, too")
            states = ask(vm, "ss -s", "summary")["states"]
            expect(states.get("TCP") == 1, states)
            shown = vm.check(f"sdpctl conn {socket['cookie']}").splitlines()
            expect(shown[0].endswith(f"{here}:{port}  TCP"), "\n".join(shown))
        finally:
            client.kill()
        wait_for(lambda: not listed(), bench.limit(20), client)


CLIENT = """
import select, socket
s = socket.socket()
s.setblocking({blocking})
if s.connect_ex(("{host}", {port})) == 115:
    select.select([], [s], [])
    s.getsockopt(1, socket.SO_ERROR)
"""


@test(machines=1, core=("stock",))
def names_the_kind_of_the_server(bench: Bench) -> None:
    """With -v, a client of one kind that meets a server of the other kind is told so. Without -v, the server does
    not see a connection of the other kind."""
    vm, here = bench.a, bench.address(bench.a)
    port = 7717
    at, refused = f"{here}:{port}", "Connection refused (os error 111)"

    def client(flags: str, rules: str = "use sdp * * *:*", blocking: bool = True) -> str:
        vm.check(f"printf '%s\\n' '{rules}' >/tmp/rules")
        program = CLIENT.format(host=here, port=port, blocking=blocking)
        return vm.check(f"sdpctl run {flags} --config /tmp/rules -- python3 -c '{program}' 2>&1")

    def accepted(job: Job) -> int:
        return sum(line.startswith("accepted") for line in job.lines)
    said = client("-v --require")
    expect(f"cannot connect to {at} by SDP: {refused}; its TCP port refuses connections" in said, said)
    with server_of(bench, vm, port) as tcp:
        client("--require")
        for blocking in (True, False):
            said = client("-v --require", blocking=blocking)
            expect(f"cannot connect to {at} by SDP: {refused}; its TCP port takes connections" in said, said)
        wait_for(lambda: accepted(tcp) >= 2, bench.limit(20), tcp)
        expect(accepted(tcp) == 2, tcp.output)
        said = client("-v", "use both * * *:*")
        expect(f"connects to {at} by TCP: SDP fails: {refused}" in said
               and f"connected to {at} by TCP: its TCP port takes connections, its SDP port does not" in said, said)
    with server_of(bench, vm, port, IPPROTO_SDP) as sdp:
        rules = "use tcp client * *:*"
        client("", rules)
        for blocking in (True, False):
            said = client("-v", rules, blocking)
            expect(f"cannot connect to {at} by TCP: {refused}; its SDP port takes connections" in said, said)
        wait_for(lambda: accepted(sdp) >= 2, bench.limit(20), sdp)
        expect(accepted(sdp) == 2, sdp.output)


REFUSED = """
import array, socket, struct
s = socket.socket()
s.setsockopt({option})
print(s.connect_ex(("{host}", {port})))
"""
# linux/in.h: IPPROTO_IP and IP_MINTTL, which Python does not know.
MINTTL = "0, 21"
# IP_OPTIONS: four times "no operation".
IP_OPTIONS = "0, 4, bytes([1] * 4)"
# SO_ATTACH_FILTER: a program with one instruction, which takes all packets.
FILTER = '1, 26, struct.pack("HL", 1, (code := array.array("Q", [0xffff00000006])).buffer_info()[0])'
# TCP_SAVE_SYN, and TCP_MD5SIG with a key for another peer.
SAVE_SYN = "6, 27, 1"
MD5 = '6, 14, struct.pack("H2x4s120xBBHI80s", 2, socket.inet_aton("10.9.9.9"), 0, 0, 3, 0, b"key")'


@test(machines=1, core=("stock",))
def options_that_sdp_refuses(bench: Bench) -> None:
    """A client that has set an option on which it relies, and which SDP refuses, connects by TCP or not at all."""
    vm, here, port = bench.a, bench.address(bench.a), 7718
    refused = "Operation not supported (os error 95)"

    def client(flags: str, option: str) -> str:
        program = REFUSED.format(host=here, port=port, option=option)
        return vm.check(f"sdpctl run -v {flags} -- python3 -c '{program}' 2>&1")
    with server_of(bench, vm, port):
        said = client("", "1, socket.SO_MARK, 42")
        expect(f"has to connect to {here}:{port} by TCP: {refused}" in said and said.endswith("\n0"), said)
        for option in ("1, socket.SO_MARK, 42", f"{MINTTL}, 255", IP_OPTIONS, FILTER, MD5):
            said = client("--require", option)
            expect(f"cannot connect to {here}:{port} by SDP: {refused}" in said and said.endswith("\n95"), said)
        said = client("--require", SAVE_SYN)
        expect("Protocol not available" in said and said.endswith("\n92"), said)
    with server_of(bench, vm, port, IPPROTO_SDP):
        for option in ("1, socket.SO_MARK, 0", f"{MINTTL}, 0"):
            said = client("--require", option)
            expect(f"connects to {here}:{port} by SDP" in said and said.endswith("\n0"), said)


# A server whose socket is of another namespace than its thread.
ELSEWHERE = """
import os, socket, time
home, blue = (os.open(path, os.O_RDONLY) for path in ("/proc/self/ns/net", "/run/netns/blue"))
os.setns(blue)
s = socket.socket()
os.setns(home)
s.bind(("0.0.0.0", {port}))
try:
    s.listen()
    # SO_PROTOCOL
    print("listens", s.getsockopt(1, 38), flush=True)
    time.sleep(1000)
except OSError as e:
    print("fails", e.errno, flush=True)
"""


@test(machines=1, core=("stock",))
def socket_of_another_namespace(bench: Bench) -> None:
    """A socket that the program has opened in another network namespace does not change its namespace: it listens by
    TCP or not at all."""
    vm, port = bench.a, 7719
    program = ELSEWHERE.format(port=port)
    vm.check("ip netns add blue")
    try:
        server = vm.spawn(f"exec sdpctl run -v -- python3 -c '{program}' 2>&1")
        try:
            wait_for(lambda: "listens " in server.output, bench.limit(30), server)
            said = server.output
            expect(f"has to listen at 0.0.0.0:{port} by TCP: Operation not supported (os error 95)" in said, said)
            expect(not vm.check(f"sdpctl ss -lH --sport {port}"), "the socket has changed its namespace")
            expect("listens 6" in said, said)
        finally:
            server.kill()
            server.wait(bench.limit(20))
        said = vm.check(f"sdpctl run --require -- python3 -c '{program}'")
        expect(said == "fails 95", said)
    finally:
        vm.check("ip netns del blue")


@test(core=("stock",))
def both_serves_both(bench: Bench) -> None:
    """A server with a `both` rule serves TCP clients and SDP clients; with --require, only SDP clients."""
    vm, there = bench.b, bench.address(bench.b)
    vm.check("printf 'use both server * *:*\\n' >/tmp/rules")

    def netperf_by(run: str, sdp: int, tcp: int) -> None:
        before = bench.stats(vm)
        output = bench.succeed(bench.a.spawn(f"exec {run} netperf -H {there} -t TCP_STREAM -l 1 -P 0"), 60)
        expect(len(output.split()) == 5, f"netperf says: {output}")
        # A connection for control, and one for data.
        counted(bench, vm, before, accepted=sdp, accepted_tcp=tcp)

    listening = f"sdpctl ss -lH --sport {NETPERF_PORT}"
    with running(bench, vm, "sdpctl run -v --config /tmp/rules -- netserver -D", NETPERF_PORT) as server:
        shown = vm.check(listening)
        expect(shown.startswith("Listen+TCP "), shown)
        expect("listen-tcp" in vm.check(f"{listening} -e"), "no option")
        expect("by SDP and TCP" in server.output, server.output)
        netperf_by("", 0, 2)
        netperf_by("sdpctl run --require --", 2, 0)
        netperf_by("", 0, 2)
    with running(bench, vm, "sdpctl run --require --config /tmp/rules -- netserver -D", NETPERF_PORT):
        expect(vm.check(listening).startswith("Listen "), "a TCP side with --require")
        netperf_by("sdpctl run --require --", 2, 0)
        said = bench.a.run(f"netperf -H {there} -t TCP_STREAM -l 1 -P 0 2>&1")
        expect(not said.ok, f"a TCP client was served: {said.output}")


@test(machines=1, core=("stock",))
def both_serves_tcp_alone(bench: Bench) -> None:
    """If another server of SDP has the port, a server with a `both` rule serves TCP clients."""
    vm, here = bench.a, bench.address(bench.a)
    vm.check("printf 'use both server * *:7708\\n' >/tmp/rules")
    program = ("import socket, sys\n"
               "tcp = socket.socket()\n"
               f'tcp.bind(("{here}", 7708))\n'
               'print("bound", flush=True)\n'
               "sys.stdin.readline()\n"
               "tcp.listen()\n"
               'tcp.accept()[0].sendall(b"tcp")\n')
    # It takes the port between bind() and listen() of the other.
    rival = ("import socket\n"
             "sdp = socket.socket(2, 1, 257)\n"
             f'sdp.bind(("{here}", 7708))\n'
             "sdp.listen()\n"
             'print("rival", flush=True)\n'
             "sdp.accept()\n")
    vm.check("mkfifo /tmp/listens")
    server = vm.spawn(f"exec sdpctl run -v --config /tmp/rules -- python3 -c '{program}' <>/tmp/listens")
    other = None
    try:
        wait_for(lambda: "bound" in server.output, bench.limit(20), server)
        other = vm.spawn(f"exec python3 -c '{rival}'")
        wait_for(lambda: "rival" in other.output, bench.limit(20), other)
        vm.check("echo >/tmp/listens")
        wait_for(lambda: vm.run("ss -ltnH sport = :7708 | grep .").ok, bench.limit(20), server)
        expect("by TCP only: " in server.output, server.output)
        client = f's.connect(("{here}", 7708))'
        said = vm.check(f"python3 -c 'import socket; s = socket.socket(); {client}; print(s.recv(9))'")
        expect("tcp" in said, said)
        vm.check(f"python3 -c 'import socket; s = socket.socket(2, 1, 257); {client}'")
    finally:
        for job in (server, other):
            if job is not None:
                job.kill()
                job.wait(bench.limit(20))
        vm.check("rm /tmp/listens")


@test(machines=1, core=("stock",))
def ports_as_with_tcp(bench: Bench) -> None:
    """Ports of listeners and connections behave as with TCP, also where clients may use TCP."""
    vm = bench.a
    listeners = "listen/name_stays listen/port_after listen/connects_after"
    for rules, names, count, flag in (("use sdp * * *:*", f"{listeners} reset/chosen_port", 4, "--require"),
                                      # In these cases a connect() without a listener waits for the
                                      # failure of the SDP attempt.
                                      ("use sdp server * *:*\nuse both client * *:*", listeners, 3, "--require"),
                                      ("use both * * *:*", listeners, 3, "")):
        before = bench.stats(vm)
        vm.check(f"printf '{rules}\n' >/tmp/rules")
        command = bench.selftest(names).replace("--family sdp", "--family tcp")
        run = f"exec sdpctl run {flag} --config /tmp/rules -- "
        output = bench.succeed(vm.spawn(command.replace("exec ", run)), 120)
        expect(output.count("\nok ") == count, output)
        accepted = bench.stats(vm)["accepted"] - before["accepted"]
        expect(accepted > 10, f"{rules}: {accepted} connections by SDP")


@test(machines=1, core=("stock",))
def port_of_another_server(bench: Bench) -> None:
    """bind() reports that an SDP server has the port, as for a TCP server; not where servers use TCP."""
    vm, here = bench.a, bench.address(bench.a)
    second = stream("listen", here, 7707, 1, 1000)
    with running(bench, vm, f"sdpctl run --require -- {stream('listen', here, 7707, 1, 1000)}", 7707):
        said = vm.run(f"strace -f -e trace=bind,listen sdpctl run --require -- {second} 2>&1")
        expect(said.rc != 0 and "os error 98" in said.output, f"{said.rc} {said.output}")
        expect(not re.search(r"bind\(.*= 0", said.output), f"bind() says nothing:\n{said.output}")
        vm.check("printf 'use sdp client * *:*\n' >/tmp/rules")
        with running(bench, vm, f"sdpctl run --config /tmp/rules -- {second}", 7707, "tcp"):
            pass


@test(machines=1, core=("stock",))
def port_of_nobody(bench: Bench) -> None:
    """bind() to port 0 assigns a port that is free for SDP as well, so that listen() does not fail."""
    vm, here = bench.a, bench.address(bench.a)
    sockets = "import socket\nsockets = [socket.socket(2, 1, {}) for _ in range(8)]\n"
    held = sockets.format(257) + f'[s.bind(("{here}", 40000 + i)) for i, s in enumerate(sockets)]\n'
    listen = sockets.format(0) + f'[(s.bind(("{here}", 0)), s.listen()) for s in sockets]\n'
    listen += "assert sorted(s.getsockname()[1] for s in sockets) == list(range(40008, 40016))\n"
    listen += "assert all(s.getsockopt(1, 38) == 257 for s in sockets)"
    holder = vm.spawn(f"exec python3 -c '{held}print(\"bound\", flush=True)\nsockets[0].listen()\nsockets[0].accept()'")
    try:
        wait_for(lambda: "bound" in holder.output, bench.limit(20), "the ports are not taken")
        with ports_of_kernel(vm, 40000, 40015):
            for _ in range(3):
                said = vm.run(f"exec sdpctl run --require -- python3 -c '{listen}'")
                expect(said.ok, said.output)
    finally:
        holder.kill()


@test(machines=1, core=("stock",))
def port_of_nobody_without_bind(bench: Bench) -> None:
    """listen() without bind() assigns a port that is free for TCP as well: otherwise another program could not bind
    to the port once the listener has been closed."""
    vm = bench.a
    held = "import socket\ntaken = [socket.socket(2, 1, 6) for _ in range(7)]\n"
    held += '[s.bind(("", 40000 + i)) for i, s in enumerate(taken)]\n'
    listen = 's = socket.socket()\ns.listen()\nassert s.getsockopt(1, 38) == 257\nprint("port", s.getsockname()[1])'
    with ports_of_kernel(vm, 40000, 40007):
        for _ in range(3):
            said = vm.run(f"exec sdpctl run --require -- python3 -c '{held}{listen}'")
            expect("port 40007" in said.output, said.output)


@test(machines=1, adapter="siw", core=("stock",))
def over_iwarp(bench: Bench) -> None:
    """Soft-iWARP uses the ports of TCP, and the TCP socket of the program still has the port when the SDP socket
    takes it."""
    here = bench.address(bench.a)
    program = "import socket\n"
    for bind in ("", f's.bind(("{here}", 0))\n', f's.bind(("{here}", 7716))\n',
                 f'd.bind(("{here}", 0))\ns.bind(("{here}", 0))\n'):
        program += f"s, d = socket.socket(), socket.socket()\n{bind}s.listen()\n"
        program += f'd.connect(("{here}", s.getsockname()[1]))\na = s.accept()[0]\n'
        program += "d.send(bytes(5))\nassert a.recv(9) == bytes(5)\n"
        program += "assert all(x.getsockopt(1, 38) == 257 for x in (s, d, a))\n"
        program += "assert not any(x.getsockopt(1, 2) for x in (s, d, a))\n"
        program += "for x in (d, a, s): x.close()\n"
    said = bench.a.run(f"exec sdpctl run --require -- python3 -c '{program}'")
    expect(said.ok, said.output)
    # The answer of a TCP port may be that of an SDP server, so neither program asks.
    program = CLIENT.format(host=here, port=7717, blocking=True)
    for command in (f"run -v --require -- python3 -c '{program}'", f"check {here}:7717"):
        said = bench.a.run(f"sdpctl {command} 2>&1")
        expect("Connection refused" in said.output and "TCP port" not in said.output, said.output)


# Tests that detect differences documented in tcp.rst and sdpctl.rst: how the peers of deferred
# connections learn of the listener's end, where connections are listed, that SDP over RoCE has ports
# of its own, that bind() takes a port of TCP only, that a shutdown() before connect() is lost, and
# that options without an effect are refused.
TELLS_SDP = ("listen/deferred_and_listener_ends ", "listen/deferred_is_shown ", "listen/ports_of_tcp_are_not_chosen ",
             "connect/peers_share_ports ", "connect/shut_down_before ", "connect/shut_down_before_and_connecting ",
             "options/what_cannot_be_obeyed ", "options/control_messages_for_timestamps ")


@test(machines=1, kinds=("stock",))
def the_suite_inside(bench: Bench) -> None:
    """The selftests of TCP, run over SDP.

    Only the library in the program is tested here, so the debug kernel would find nothing more.
    """
    before = bench.stats(bench.a)
    groups = "data/ urgent/ blocking/ poll/ listen/ connect/ options/ events/signals_name_their_event"
    command = bench.selftest(groups).replace("--family sdp", "--family tcp")
    job = bench.a.spawn(command.replace("exec ", "exec sdpctl run --require -- "))
    bench.finish(job, 300)
    results = [line for line in job.lines if re.match(r"(not )?ok ", line)]
    failed = [line for line in results if line.startswith("not ok") and not any(name in line for name in TELLS_SDP)]
    expect(len(results) > 100, f"{len(results)} results:\n{job.output[-3000:]}")
    expect(not failed, "\n".join(failed))
    after = bench.stats(bench.a)
    expect(after["accepted"] - before["accepted"] > 20, f"{after['accepted']} connections by SDP")
