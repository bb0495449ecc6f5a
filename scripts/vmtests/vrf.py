# SPDX-License-Identifier: GPL-2.0
"""A machine with its link in a VRF: its ports, and that it cannot be reached from outside of the VRF.

No SDP connections exist in the VRF. Soft-RoCE gets no packet from another machine: IP assigns packets that
arrive over the link to the VRF device, and rxe_udp_encap_recv() drops them because it is not the device of the
soft-RoCE adapter. For connections to the machine's own address, the RDMA CM looks up an RDMA device by the VRF
device (ENODEV).
"""

from vmlib.bench import Bench, expect, test, wait_for
from vmlib.machine import Job

VRF = "sdpvrf"
PORT = 7660


def listening(bench: Bench, family: str, port: int, inside: bool) -> Job:
    """A server of one connection, started when it listens."""
    # Outside of the VRF the machine does not have the address.
    words = f"{bench.address(bench.a)}:{port} --device {VRF}" if inside else f"0.0.0.0:{port}"
    job = bench.a.spawn(f"exec selftest stream --family {family} --listen {words} --conns 1 --bytes 1000")
    sockets = f"sdpctl ss -lH --sport {port}" if family == "sdp" else f"ss -ltnH sport = :{port}"

    def listens() -> bool:
        expect(job.wait(0.1) is None, f"{family}: it does not listen: {job.output}")
        return bench.a.run(f"{sockets} | grep .").ok
    wait_for(listens, bench.limit(20), "nobody listens")
    return job


def connecting(bench: Bench, family: str, port: int, inside: bool) -> Job:
    words = f"--device {VRF}" if inside else ""
    return bench.a.spawn(f"exec selftest stream --family {family} --connect {bench.address(bench.a)}:{port} "
                         f"{words} --conns 1 --bytes 1000")


def refused(bench: Bench, family: str, port: int, inside: bool, errno: int) -> None:
    job = connecting(bench, family, port, inside)
    status = bench.finish(job, 60)
    expect(status != 0 and f"os error {errno}" in job.output, f"{family}, not errno {errno}: {status} {job.output}")


def connections(bench: Bench, family: str, port: int) -> None:
    server = listening(bench, family, port, True)
    bench.succeed(connecting(bench, family, port, True), 60)
    bench.succeed(server, 20)
    # A server outside of all VRFs gets no connections that arrive through a VRF, unless a sysctl
    # allows it.
    outside = listening(bench, family, port, False)
    refused(bench, family, port, True, 111)
    bench.a.check("echo 1 >/proc/sys/net/ipv4/tcp_l3mdev_accept")
    bench.succeed(connecting(bench, family, port, True), 60)
    bench.succeed(outside, 20)
    bench.a.check("echo 0 >/proc/sys/net/ipv4/tcp_l3mdev_accept")


def ports(bench: Bench, family: str, port: int) -> None:
    """Servers inside and outside of the VRF can use the same port at the same time."""
    servers = [listening(bench, family, port, True)]
    # Outside of the VRF there is no route to the address.
    refused(bench, family, port, False, 101)
    servers.append(listening(bench, family, port, False))
    wait_for(lambda: servers[-1].wait(0.5) is None, 5, "it ends")
    count = int(bench.a.check(f"sdpctl ss -lH --sport {port} | grep -c ." if family == "sdp" else
                              f"ss -ltnH sport = :{port} | grep -c ."))
    expect(count == 2, f"{family}: {count} servers have the port")
    for server in servers:
        server.kill()
        server.wait(bench.limit(20))


# The debug kernel has no VRFs.
@test(machines=1, kinds=("stock",), breaks=True)
def link_in_a_vrf(bench: Bench) -> None:
    """SDP behaves like TCP, which is checked first."""
    bench.a.check(f"modprobe vrf && ip link add {VRF} type vrf table 10 && ip link set {VRF} up && "
                  f"ip link set eth0 master {VRF}")
    ports(bench, "tcp", PORT)
    connections(bench, "tcp", PORT + 1)
    ports(bench, "sdp", PORT + 2)
