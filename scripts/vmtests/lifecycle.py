# SPDX-License-Identifier: GPL-2.0
"""The module loads on demand, stays while in use, and unloads cleanly."""

import contextlib
from collections.abc import Iterator

from vmlib.bench import Bench, expect, test, wait_for
from vmlib.machine import Job, Vm


def loaded(vm: Vm) -> bool:
    """Whether the module is loaded. While it loads, rmmod may report that it is not."""
    return vm.run("grep -q '^ib_sdp .* Live ' /proc/modules").ok


@test(machines=1)
def socket_loads_module(bench: Bench) -> None:
    """socket(27, ...) loads the module: the kernel requests net-pf-27."""
    bench.unload(bench.a)
    expect(not loaded(bench.a), "the module is still there after rmmod")
    server = bench.stream(bench.a, "listen", 7001)
    wait_for(lambda: loaded(bench.a), bench.limit(20), "the module did not load by itself")
    server.kill()


@test(machines=1, core=("stock",))
def aliases(bench: Bench) -> None:
    """The aliases of both families and of the protocol of AF_INET and AF_INET6."""
    for name in ("net-pf-27", "net-pf-28", "net-pf-2-proto-257-type-1", "net-pf-10-proto-257-type-1"):
        bench.unload(bench.a)
        bench.a.check(f"modprobe {name}")
        expect(loaded(bench.a), f"modprobe {name} did not load the module")


@test(machines=1, core=("stock",))
def only_root_loads_it(bench: Bench) -> None:
    """The example line for /etc/modprobe.d prevents socket() from loading the module."""
    vm = bench.a
    bench.unload(vm)
    vm.check("mkdir -p /etc/modprobe.d && echo blacklist ib_sdp >/etc/modprobe.d/ib-sdp.conf")
    try:
        for family, protocol in ((27, 0), (28, 0), (2, 257), (10, 257)):
            program = f"import socket; socket.socket({family}, socket.SOCK_STREAM, {protocol})"
            result = vm.run(f'python3 -c "{program}"')
            expect("not supported" in result.output, f"{family}, {protocol}: {result.output}")
            expect(not loaded(vm), f"socket({family}, SOCK_STREAM, {protocol}) has loaded the module")
        vm.check("modprobe ib_sdp")
        expect(loaded(vm), "root cannot load it")
    finally:
        vm.check("rm /etc/modprobe.d/ib-sdp.conf")


@contextlib.contextmanager
def ports_of_kernel(vm: Vm, first: int, last: int) -> Iterator[None]:
    """The range of ports that the kernel assigns."""
    name = "/proc/sys/net/ipv4/ip_local_port_range"
    before = vm.check(f"cat {name}")
    vm.check(f"echo {first} {last} >{name}")
    try:
        yield
    finally:
        vm.check(f"echo '{before}' >{name}")


@test(machines=1, core=("stock",))
def listens_beside_others_of_the_cm(bench: Bench) -> None:
    """A listener without a chosen port gets one that no other user of the RDMA CM has."""
    vm, here = bench.a, bench.address(bench.a)
    other = vm.spawn("exec rping -s -p 40000")
    try:
        wait_for(lambda: vm.run("rdma resource show cm_id | grep -w LISTEN | grep -q :40000").ok,
                 bench.limit(20), "rping does not listen")
        with ports_of_kernel(vm, 40000, 40001):
            program = "import socket\ns = socket.socket(2, 1, 257)\ns.listen()\nprint(s.getsockname()[1])"
            for _ in range(12):
                said = vm.run(f"python3 -c '{program}'")
                expect(said.ok and said.output.strip() == "40001", said.output)
        bound = vm.run(f"exec selftest stream --family sdp --listen {here}:40000 --conns 1 --bytes 1 --seed 1")
        expect(not bound.ok and "Address already in use" in bound.output, bound.output)
    finally:
        other.kill()


SHARED_PORTS = """
import errno, socket, time
PORTS = range(40000, 40004)
def server(port):
    sock = socket.socket(2, 1, 257)
    sock.setsockopt(1, socket.SO_REUSEADDR, 1)
    sock.bind(("{here}", port))
    sock.listen(8)
    return sock
def connected(server):
    client = socket.socket(2, 1, 257)
    client.connect(server.getsockname())
    return client, server.accept()[0]
def listens(port):
    sock = socket.socket(2, 1, 257)
    try:
        sock.bind(("{here}", port))
    except OSError as e:
        assert e.errno == errno.EADDRINUSE, e
        return False
    sock.listen()
    return True
one, other = server(50000), server(50001)
for _ in range(8):
    ends = [connected(one) for _ in PORTS]
    # The RDMA CM has all ports, and chooses one that it shares.
    kept = connected(other)
    for client, accepted in ends:
        client.close()
        accepted.close()
    # A port is free when the RDMA CM has released it.
    end = time.monotonic() + 20
    while sum(map(listens, PORTS)) < 2:
        assert time.monotonic() < end, "the ports do not become free"
        time.sleep(0.05)
    kept[0].close()
    kept[1].close()
    while sum(map(listens, PORTS)) < 4:
        assert time.monotonic() < end, "not all ports become free"
        time.sleep(0.05)
"""


@test(machines=1, core=("stock",))
def listens_beside_shared_ports(bench: Bench) -> None:
    """A program can listen at each port that bind() gives, also while connections share ports at the RDMA CM."""
    vm = bench.a
    with ports_of_kernel(vm, 40000, 40003):
        program = SHARED_PORTS.replace("{here}", bench.address(vm))
        vm.check(f"cat >/tmp/ports.py <<'END'\n{program}END\nexec python3 /tmp/ports.py", bench.limit(60))


CLIENTS_AND_LISTENERS = """
import socket
def bound(port):
    sock = socket.socket(2, 1, 257)
    sock.setsockopt(1, socket.SO_REUSEADDR, 1)
    sock.bind(("{here}", port))
    return sock
server = bound(50000)
server.listen(8)
clients = [bound(50001 + i) for i in range(8)]
for client in clients:
    client.connect(("{here}", 50000))
listeners = [bound(0) for _ in range(8)]
for listener in listeners:
    listener.listen()
print(sorted(listener.getsockname()[1] for listener in listeners))
"""


@test(machines=1, core=("stock",))
def listens_beside_connections(bench: Bench) -> None:
    """A port assigned by bind() is not one that the RDMA CM uses for a connection whose program chose the port."""
    vm = bench.a
    with ports_of_kernel(vm, 40000, 40015):
        for _ in range(3):
            vm.check(f"cat >/tmp/ports.py <<'END'{CLIENTS_AND_LISTENERS.format(here=bench.address(vm))}END")
            said = vm.run("exec python3 /tmp/ports.py")
            expect(said.ok and said.output.startswith("[40"), said.output)


@test(machines=1)
def unload_refused_while_used(bench: Bench) -> None:
    server = bench.stream(bench.a, "listen", 7002)
    wait_for(lambda: len(bench.a.check("cat /proc/net/sdp").splitlines()) > 1, bench.limit(20),
             "the listener is not in /proc/net/sdp")
    result = bench.a.run("rmmod ib_sdp")
    expect(not result.ok, "rmmod succeeded under an open socket")
    expect("in use" in result.output, f"rmmod said: {result.output}")
    server.kill()
    server.wait(bench.limit(20))
    bench.unload(bench.a)
    bench.load(bench.a)


@contextlib.contextmanager
def deferred(bench: Bench, port: int) -> Iterator[Job]:
    """Three connections whose listener defers them, and the listener's process."""
    vm = bench.a
    # Standard input that never ends.
    vm.check("rm -f /tmp/never; mkfifo /tmp/never")
    idle = f"exec selftest idle --family sdp {{}} {bench.address(vm)}:{port} <>/tmp/never"
    listener = vm.spawn(idle.format("--conns 1 --defer 60 --listen"))
    wait_for(lambda: states(vm, port) == ["Listen"], bench.limit(20), "nobody listens")
    client = vm.spawn(idle.format("--conns 3 --connect"))
    try:
        wait_for(lambda: states(vm, port) == ["HelloReceived"] * 3 + ["Listen"], bench.limit(30), "nothing is deferred")
        yield listener
    finally:
        for process in (client, listener):
            process.kill()
            process.wait(bench.limit(20))


def states(vm: Vm, port: int) -> list[str]:
    """The states of the sockets bound to that port, sorted."""
    lines = (line.split() for line in vm.check("cat /proc/net/sdp").splitlines())
    return sorted(words[2] for words in lines if words[0].endswith(f":{port}"))


@test(machines=1)
def unload_after_deferred(bench: Bench) -> None:
    """A listener with deferred connections is killed: no connection and no timer of it is left."""
    vm = bench.a
    with deferred(bench, 7003) as listener:
        listener.kill()
        listener.wait(bench.limit(20))
        wait_for(lambda: states(vm, 7003) == [], bench.limit(20), "something has the port")
    bench.unload(vm)
    bench.load(vm)


@test(machines=1, breaks=True)
def deferred_when_the_device_goes(bench: Bench) -> None:
    """Deferred connections that end leave their listener, which stays open."""
    vm = bench.a
    with deferred(bench, 7004):
        vm.check("rdma link delete rxe0", bench.limit(60))
        wait_for(lambda: states(vm, 7004) == ["Listen"], bench.limit(20), "they are still there")
        line = next(line for line in vm.check("cat /proc/net/sdp").splitlines() if " Listen " in line)
        expect(line.split()[4] == "0", f"the listener's queue: {line}")


@test(core=("stock",))
def reload_ten_times(bench: Bench) -> None:
    """Between any two reloads, a connection moves data."""
    for round_number in range(10):
        for vm in bench.vms:
            bench.unload(vm)
            bench.load(vm)
        port = 7100 + round_number
        server = bench.stream(bench.b, "listen", port, 2, 100_000)
        client = bench.stream(bench.a, "connect", port, 2, 100_000)
        bench.succeed(client, 60)
        bench.succeed(server, 60)


@test(core=("stock",))
def two_hundred_connections(bench: Bench) -> None:
    many_connections(bench, 7200, 200)


# Two hundred take a minute of the host's processors under the checkers.
@test(kinds=("debug",))
def fifty_connections(bench: Bench) -> None:
    many_connections(bench, 7201, 50)


def many_connections(bench: Bench, port: int, count: int) -> None:
    """Streams on so many connections at the same time."""
    size = bench.amount(200_000)
    server = bench.stream(bench.b, "listen", port, count, size)
    client = bench.stream(bench.a, "connect", port, count, size)
    bench.succeed(client, 300)
    bench.succeed(server, 60)
