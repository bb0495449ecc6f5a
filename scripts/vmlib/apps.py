# SPDX-License-Identifier: GPL-2.0
"""`scripts/bench apps`: the applications of the papers on SDP, over SDP and over TCP.

A data centre (a web server, and a proxy in front of a web server), FTP, and a parallel file system whose clients
stripe files over several servers; all programs are Debian's (scripts/programs). The machines have the test
adapter, whose links have a rate; TCP uses the network cards beside the adapter, which have no limit.

What was measured is kept in apps.json of the output folder. A run goes on where an earlier one with the same
module and programs has stopped.
"""

import contextlib
import dataclasses
import functools
import os
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from .bench import Bench, Failure, expect, wait_for
from .debian import LISTENERS_OF_SDP, LISTENERS_OF_TCP, ROOT, RUN, VSFTPD, run, serving, shell, spawn, write
from .figures import FOLDER, ROUNDS, SETTINGS, Measured, Results, done, made_of, medians, quotient
from .machine import Vm, VmError
from .measuring import KIB, MIB, Servers, heading, processor_time
from .plot import lines
from .setup import say

# The client, and the servers: the last one is the web server, and the one before it the proxy.
MACHINES = 4
# The rate of the links in proportion to a processor's copies.
SETTING = "2006"
SECONDS = 2
SIZES = (KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB)


@dataclasses.dataclass(frozen=True)
class Way:
    """How programs reach each other, and a number that keeps the ports of the ways apart."""

    door: str
    listeners: str
    number: int
    # sdpbench's word.
    transport: str

    def port(self, of_tcp: int) -> int:
        return of_tcp + self.number


WAYS = {"SDP": Way(RUN, LISTENERS_OF_SDP, 1, "sdp"), "TCP": Way("", LISTENERS_OF_TCP, 0, "tcp")}

# Measures one point by one way.
Measurement: TypeAlias = Callable[[Way, str], list[float]]


def measured(rate: float, units: float, busy: Sequence[float]) -> list[float]:
    """A result: the rate, and the us of the client's and of all servers' processors for a unit."""
    client, *servers = (time * 1e6 / units for time in busy)
    return [rate, client, sum(servers)]


def serve(bench: Bench, vm: Vm, way: Way, command: str, port: int) -> contextlib.AbstractContextManager[object]:
    return serving(bench, vm, command, port, way.door, way.listeners)


NGINX = """daemon off;
user root;
worker_processes 1;
error_log stderr crit;
pid /tmp/nginx-{port}.pid;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000000;
    open_file_cache max=100;
    client_body_temp_path /tmp/nginx-{port}-body;
    proxy_temp_path /tmp/nginx-{port}-proxy;
    fastcgi_temp_path /tmp/nginx-{port}-fastcgi;
    uwsgi_temp_path /tmp/nginx-{port}-uwsgi;
    scgi_temp_path /tmp/nginx-{port}-scgi;
    {content}
}}"""
FILES = "server {{ listen {address}:{port} backlog=1024; root /tmp/www; }}"
PROXY = """upstream web {{ server {web}:{web_port}; keepalive 32; }}
    proxy_buffers 16 64k;
    proxy_max_temp_file_size 0;
    server {{
        listen {address}:{port} backlog=1024;
        location / {{ proxy_pass http://web; proxy_http_version 1.1; proxy_set_header Connection ""; }}
    }}"""
WEB_PORT = 8080
PROXY_PORT = 8090


def nginx(bench: Bench, vm: Vm, way: Way, port: int, content: str) -> contextlib.AbstractContextManager[object]:
    """An nginx of one worker; `content` is the part of the configuration that names the servers."""
    write(vm, f"/tmp/nginx-{port}.conf", NGINX.format(port=port, content=content))
    return serve(bench, vm, way, f"nginx -c /tmp/nginx-{port}.conf", port)


@contextlib.contextmanager
def web_servers(bench: Bench) -> Iterator[None]:
    """Web servers for both ways on the last machine, with files that are named by their sizes."""
    vm = bench.b
    shell(bench, vm, "mkdir -p /tmp/www /var/log/nginx /var/lib/nginx; cd /tmp/www; "
          f"for n in {' '.join(map(str, SIZES))}; do head -c $n /dev/urandom >$n; done")
    with contextlib.ExitStack() as stack:
        for way in WAYS.values():
            port = way.port(WEB_PORT)
            stack.enter_context(nginx(bench, vm, way, port, FILES.format(address=bench.address(vm), port=port)))
        yield


def requests(bench: Bench, way: Way, vm: Vm, port: int, path: str, clients: int,
             options: str = "") -> list[float]:
    """Requests per second of so many clients."""
    command = (f"wrk -t 1 -c {clients} -d {SECONDS}s --timeout 30s {options} "
               f"http://{bench.address(vm)}:{port}/{path}")
    output, busy = processor_time(bench, lambda: run(bench, bench.a, command, way.door))
    rate = re.search(r"^Requests/sec: +([\d.]+)", output, re.MULTILINE)
    count = re.search(r"(\d+) requests in", output)
    if not rate or not count or "Socket errors" in output or "Non-2xx" in output:
        raise VmError(f"wrk says:\n{output}")
    return measured(float(rate[1]), float(count[1]), busy)


@contextlib.contextmanager
def web(bench: Bench) -> Iterator[Measurement]:
    with web_servers(bench):
        yield lambda way, size: requests(bench, way, bench.b, way.port(WEB_PORT), size, 8)


@contextlib.contextmanager
def proxy(bench: Bench) -> Iterator[Measurement]:
    """The proxy keeps connections to the web server open, and reaches the web server as the client reaches it."""
    vm = bench.vms[-2]
    shell(bench, vm, "mkdir -p /var/log/nginx /var/lib/nginx")
    with web_servers(bench), contextlib.ExitStack() as stack:
        for way in WAYS.values():
            port = way.port(PROXY_PORT)
            stack.enter_context(nginx(bench, vm, way, port, PROXY.format(
                address=bench.address(vm), port=port, web=bench.address(bench.b), web_port=way.port(WEB_PORT))))
        yield lambda way, size: requests(bench, way, vm, way.port(PROXY_PORT), size, 8)


@contextlib.contextmanager
def connections(bench: Bench) -> Iterator[Measurement]:
    with web_servers(bench):
        yield lambda way, clients: requests(bench, way, bench.b, way.port(WEB_PORT), str(KIB), int(clients),
                                            "-H 'Connection: close'")


FTP_PORT = 2100
# The files of one measurement, by their size.
FTP_FILES = {64 * KIB: 16, MIB: 8, 16 * MIB: 2}


@contextlib.contextmanager
def ftp(bench: Bench, put: bool) -> Iterator[Measurement]:
    """Each file has a data connection of its own."""
    a, b = bench.a, bench.b
    for vm, folder in ((a, "/tmp/files"), (b, "/tmp/ftp")):
        shell(bench, vm, f"mkdir -p {folder} /tmp/ftp/in /tmp/empty; chown ftp /tmp/ftp/in; chmod 755 /tmp/empty; "
              f"cd {folder}; " + "; ".join(f"head -c {size} /dev/urandom >{size}-1; for i in $(seq 2 {count}); do "
                                           f"ln -f {size}-1 {size}-$i; done" for size, count in FTP_FILES.items()))

    def measure(way: Way, size: str) -> list[float]:
        url = f"ftp://{bench.address(b)}:{way.port(FTP_PORT)}"
        files = f"{size}-[1-{FTP_FILES[int(size)]}]"
        what = f"-T /tmp/files/{files} {url}/in/" if put else f"-o /dev/null {url}/{files}"
        command = f"curl -sS -w '%{{time_total}} %{{size_upload}} %{{size_download}}\\n' {what}"
        output, busy = processor_time(bench, lambda: run(bench, a, command, way.door))
        times = [line.split() for line in output.splitlines()]
        count = sum(float(up) + float(down) for _, up, down in times)
        if count != int(size) * FTP_FILES[int(size)]:
            raise VmError(f"curl says:\n{output}")
        if put:
            shell(bench, b, "rm /tmp/ftp/in/*")
        return measured(count / 1e6 / sum(float(seconds) for seconds, _, _ in times), count / MIB, busy)
    with contextlib.ExitStack() as stack:
        for way in WAYS.values():
            port = way.port(FTP_PORT)
            write(b, f"/tmp/vsftpd-{port}.conf", VSFTPD.format(port=port))
            stack.enter_context(serve(bench, b, way, f"vsftpd /tmp/vsftpd-{port}.conf", port))
        yield measure


BRICK = """volume disk
    type storage/posix
    option directory {folder}
end-volume
volume brick
    type features/locks
    subvolumes disk
end-volume
volume server
    type protocol/server
    option transport-type socket
    option transport.socket.bind-address {address}
    option transport.socket.listen-port {port}
    option auth.addr.brick.allow *
    subvolumes brick
end-volume"""
SUBVOLUME = """volume server{number}
    type protocol/client
    option transport-type socket
    option remote-host {address}
    option remote-port {port}
    option remote-subvolume brick
end-volume
"""
# Files are cut into pieces, of the least size that GlusterFS allows, which all servers hold.
MOUNTED = """volume all
    type cluster/distribute
    subvolumes {servers}
end-volume
volume striped
    type features/shard
    option shard-block-size 4MB
    subvolumes all
end-volume
volume written
    type performance/write-behind
    option window-size 4MB
    subvolumes striped
end-volume
volume read
    type performance/read-ahead
    option page-count 8
    subvolumes written
end-volume"""
BRICK_PORT = 7600
MOUNT = "/tmp/mnt"
FILE_MIB = 48


@contextlib.contextmanager
def bricks(bench: Bench, way: Way, servers: Sequence[Vm]) -> Iterator[str]:
    """GlusterFS's servers with an empty file system in memory; the name of the client's configuration."""
    port = way.port(BRICK_PORT)
    with contextlib.ExitStack() as stack:
        for vm in servers:
            shell(bench, vm, "rm -rf /tmp/brick; mkdir -p /tmp/brick /var/lib/glusterd /var/run/gluster")
            write(vm, "/tmp/brick.vol", BRICK.format(folder="/tmp/brick", address=bench.address(vm), port=port))
            stack.enter_context(serve(bench, vm, way, "glusterfsd -f /tmp/brick.vol -N -l /dev/stderr", port))
        parts = [SUBVOLUME.format(number=number, address=bench.address(vm), port=port)
                 for number, vm in enumerate(servers)]
        names = " ".join(f"server{number}" for number in range(len(servers)))
        write(bench.a, "/tmp/all.vol", "".join(parts) + MOUNTED.format(servers=names))
        yield "/tmp/all.vol"


@contextlib.contextmanager
def mounted(bench: Bench, way: Way, volume: str) -> Iterator[None]:
    """GlusterFS at MOUNT of the client's root."""
    vm = bench.a
    log = "/tmp/glusterfs.log"
    shell(bench, vm, f"mkdir -p {MOUNT}")
    job = spawn(vm, f"glusterfs -f {volume} {MOUNT} -l {log} -N", way.door)
    try:
        look = f"grep -q ' {ROOT}{MOUNT} fuse' /proc/mounts"
        wait_for(lambda: job.ended.is_set() or vm.run(look).ok, bench.limit(60), "GlusterFS is not mounted")
        expect(not job.ended.is_set(), f"glusterfs ended with {job.status}:\n{job.output}")
        yield
    finally:
        said = vm.run(f"umount {ROOT}{MOUNT}; tail -n 20 {ROOT}{log}")
        job.kill()
        expect(job.wait(bench.limit(20)) is not None, f"glusterfs does not end:\n{said.output}")


@contextlib.contextmanager
def file_system(bench: Bench, writes: bool) -> Iterator[Measurement]:
    """GlusterFS of so many servers, which starts anew for each measurement."""

    def dd(words: str) -> float:
        output = shell(bench, bench.a, f"dd bs=1M {words} 2>&1")
        match = re.search(r"(\d+) bytes .*copied, ([\d.e-]+) s", output)
        if not match or int(match[1]) != FILE_MIB * MIB:
            raise VmError(f"dd says:\n{output}")
        return int(match[1]) / 1e6 / float(match[2])

    def measure(way: Way, count: str) -> list[float]:
        write_file = functools.partial(dd, f"if=/dev/zero of={MOUNT}/file count={FILE_MIB} conv=fsync")
        with bricks(bench, way, bench.vms[1:1 + int(count)]) as volume, mounted(bench, way, volume):
            if writes:
                rate, busy = processor_time(bench, write_file)
            else:
                write_file()
                bench.a.check("echo 3 >/proc/sys/vm/drop_caches")
                rate, busy = processor_time(bench, functools.partial(dd, f"if={MOUNT}/file of=/dev/null"))
        return measured(rate, FILE_MIB, busy)
    yield measure


@contextlib.contextmanager
def fan_in(bench: Bench) -> Iterator[Measurement]:
    """So many machines send to one, each with one stream."""
    def together(way: Way, count: int) -> float:
        command = f"{servers.prefix(way.transport)} bw {64 * KIB} --seconds {SECONDS}"
        jobs = [vm.spawn(command) for vm in bench.vms[:count]]
        output = "\n".join(bench.succeed(job, 60) for job in jobs)
        rates = re.findall(r"^bw ([\d.]+)", output, re.MULTILINE)
        if len(rates) != count:
            raise VmError(f"sdpbench says:\n{output}")
        return sum(map(float, rates))

    def measure(way: Way, count: str) -> list[float]:
        rate, busy = processor_time(bench, functools.partial(together, way, int(count)))
        # The sender's share of the processors is that of all senders here.
        return measured(rate, rate * 1e6 * SECONDS / MIB, [sum(busy[:-1]), busy[-1]])
    with Servers(bench) as servers:
        yield measure


@dataclasses.dataclass(frozen=True)
class Plan:
    """An application, and what is measured of it."""

    name: str
    title: str
    # What the x axis counts.
    axis: str
    # Of the rate, and of what costs are for.
    unit: str
    per: str
    points: Sequence[str]
    start: Callable[[Bench], contextlib.AbstractContextManager[Measurement]]


def texts(numbers: Sequence[int]) -> list[str]:
    return [str(number) for number in numbers]


PLANS = (
    Plan("web", "Web server (nginx), 8 clients (wrk)", "bytes of a file", "requests/s", "request", texts(SIZES), web),
    Plan("proxy", "A proxy (nginx) in front of the web server, 8 clients", "bytes of a file", "requests/s", "request",
         texts(SIZES), proxy),
    Plan("connections", "Web server, a connection for each file of 1 KiB", "clients", "requests/s", "request",
         texts((1, 8, 32)), connections),
    Plan("ftp-get", "FTP (vsftpd and curl), get", "bytes of a file", "MB/s", "MiB", texts(list(FTP_FILES)),
         lambda bench: ftp(bench, put=False)),
    Plan("ftp-put", "FTP (vsftpd and curl), put", "bytes of a file", "MB/s", "MiB", texts(list(FTP_FILES)),
         lambda bench: ftp(bench, put=True)),
    Plan("files-read", f"Parallel file system (GlusterFS), a file of {FILE_MIB} MiB is read", "servers", "MB/s", "MiB",
         texts((1, 2, 3)), lambda bench: file_system(bench, writes=False)),
    Plan("files-write", f"Parallel file system (GlusterFS), a file of {FILE_MIB} MiB is written", "servers", "MB/s",
         "MiB", texts((1, 2, 3)), lambda bench: file_system(bench, writes=True)),
    Plan("fan-in-machines", "So many machines send to one, 64 KiB (sdpbench)", "machines", "MB/s", "MiB",
         texts((1, 2, 3)), fan_in),
)


def carried_by(vm: Vm) -> int:
    """The bytes that SDP has carried for a machine."""
    stats = Bench.stats(vm)
    return stats["rx_bytes"] + stats["tx_bytes"] + stats["tx_zcopy_bytes"]


def once(bench: Bench, measurement: Measurement, way: Way, point: str) -> list[float]:
    """One measurement, which SDP must carry or not."""
    before = carried_by(bench.a)
    result = measurement(way, point)
    carried = carried_by(bench.a) - before
    if (carried > 0) != (way is WAYS["SDP"]):
        raise VmError(f"SDP has carried {carried} bytes")
    return result


def measure(bench: Bench, plan: Plan, measurement: Measurement, point: str, rounds: int) -> Measured:
    """Both ways at one point, in turns."""
    results: Measured = {name: [] for name in WAYS}
    for number in range(rounds):
        for name, way in WAYS.items():
            try:
                results[name].append(once(bench, measurement, way, point))
            except (VmError, Failure) as error:
                say(f"  .. {plan.name}, {name}, {point}, round {number + 1}: {error}")
                results[name].append(None)
    return results


def table(plan: Plan, results: Results) -> str:
    """An application's medians with the least and the most, and the costs."""
    cells = {point: results.get(plan.name, SETTING, point) for point in plan.points}
    text = f"{plan.title}; {plan.unit}, by {plan.axis}"
    text += f"\n{'-' * len(text)}\n"
    width = len("servers, us per request, SDP")
    text += " " * width + "".join(f"{point:>26}" for point in plan.points) + "\n"
    for name in WAYS:
        text += f"{name:<{width}}"
        for cell in cells.values():
            values = done(cell.get(name, []))
            text += f"{f'{statistics.median(values):.1f} ({min(values):.1f}-{max(values):.1f})' if values else '-':>26}"
        text += "\n"
    text += f"{'SDP / TCP':<{width}}" + "".join(
        f"{quotient(cell, 'SDP', ['TCP'], least=False):>26}" for cell in cells.values()) + "\n"
    for column, side in ((1, "client"), (2, "servers")):
        for name in WAYS:
            costs = [medians(cell, column).get(name) for cell in cells.values()]
            text += f"{f'{side}, us per {plan.per}, {name}':<{width}}" + "".join(
                f"{'-' if cost is None else f'{cost:.0f}':>26}" for cost in costs) + "\n"
    return text


def draw(plan: Plan, results: Results, folder: str) -> None:
    rates: Mapping[str, dict[str, float]] = {name: {} for name in WAYS}
    for point in plan.points:
        for name, rate in medians(results.get(plan.name, SETTING, point)).items():
            rates[name][point] = rate
    lines(os.path.join(folder, f"app-{plan.name}.svg"), plan.title, results.measured(), plan.axis, plan.unit, rates)


def apps(bench: Bench, folder: str = FOLDER, rounds: int = ROUNDS) -> None:
    """Measures the points that are not kept yet, prints all tables, and draws the plots."""
    os.makedirs(folder, exist_ok=True)
    disk = os.path.basename(os.environ["IB_SDP_PROGRAMS"])
    results = Results(folder, f"{made_of()} {disk} {rounds} rounds", f"scripts/bench apps --rounds {rounds}",
                      "apps.json")
    results.measure_copies(bench)
    rate = SETTINGS[SETTING] * results.copies
    bench.adapter.ask("rate", f"{rate * 8:.0f}M")
    text = (f"{results.measured()}\nMedians (least-most) of {rounds} rounds.\n"
            f"A machine's processor copies {results.copies:.0f} MB/s, and each link carries {rate:.0f} MB/s.\n")
    print(text, flush=True)
    for plan in PLANS:
        missing = [point for point in plan.points if results.lacks(plan.name, SETTING, point, WAYS)]
        if missing:
            with plan.start(bench) as measurement:
                for point in missing:
                    say(f"  .. {plan.title}: {point} {plan.axis}")
                    results.keep(plan.name, SETTING, point, measure(bench, plan, measurement, point, rounds))
        shown = table(plan, results)
        print(shown, flush=True)
        text += f"\n{shown}"
        # A run that is stopped later has this much.
        with open(os.path.join(folder, "apps.txt"), "w", encoding="utf-8") as file:
            file.write(text)
        draw(plan, results, folder)
    heading(f"The tables and the plots are in {folder}")
