# SPDX-License-Identifier: GPL-2.0
"""`make demo`: two machines exchange data over TCP, raw RDMA and SDP, by soft-RoCE and by the test adapter."""

import functools
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import TypeVar

from . import klog
from .bench import Bench, Failure, expect, wait_for
from .machine import Vm, VmError
from .measuring import COPY, MIB, MODES, Servers, counting, processor_time
from .plot import bars
from .rates import QperfServer, qperf
from .setup import kernels, machines, say

T = TypeVar("T")

# A mebibyte in each direction on each of 16 connections, which uses every path.
CONNECTIONS = 16
BYTES = 1 << 20
# The duration of each measurement over the adapter.
SECONDS = 3
RSYNC_MIB = 16

ROWS = [
    ("TCP", "tcp_bw", "tcp_lat"),
    ("raw RDMA (verbs)", "rc_bw", "rc_lat"),
    ("SDP (AF_INET_SDP)", "sdp_bw", "sdp_lat"),
]


class BySoftRoce(Bench):
    """Machines that also have the adapter, used by the addresses of soft-RoCE."""

    @staticmethod
    def address(vm: Vm) -> str:
        return f"10.27.0.{vm.ident}"


def rates(bench: Bench) -> list[tuple[str, float, float]]:
    peer = bench.address(bench.b)
    results = []
    with QperfServer(bench.b):
        for title, bandwidth, latency in ROWS:
            say(f"  .. measuring {title} with qperf")
            results.append((title, qperf(bench.a, peer, bandwidth, 65536), qperf(bench.a, peer, latency, 1)))
    return results


def byte_check(bench: Bench) -> tuple[int, int]:
    """Streams in both directions with seeded data; the receivers compare every byte."""
    say(f"  .. streaming both ways on {CONNECTIONS} connections, checking every byte")
    server = bench.stream(bench.b, "listen", 7400, CONNECTIONS, BYTES)
    client = bench.stream(bench.a, "connect", 7400, CONNECTIONS, BYTES)
    outputs = [bench.succeed(job, 120) for job in (client, server)]
    checked = [m for m in (re.search(r"byte-check: (\d+) bytes, (\d+) wrong", output) for output in outputs) if m]
    if len(checked) != len(outputs):
        raise Failure("no byte-check in the output:\n" + "\n".join(outputs))
    return sum(int(m[1]) for m in checked), sum(int(m[2]) for m in checked)


def carried(bench: Bench) -> int:
    """The number of bytes that the module of the first machine has carried."""
    stats = bench.stats(bench.a)
    return sum(stats[name] for name in ("tx_bytes", "tx_zcopy_bytes", "rx_bytes"))


def file_transfer(bench: Bench) -> int:
    """rsync, which does not support SDP, fetches a file from its own server; returns the number of bytes that
    SDP carried."""
    say(f"  .. rsync fetches a file of {RSYNC_MIB} MiB, by `sdpctl run`")
    there, before = bench.address(bench.b), carried(bench)
    bench.b.check(f"mkdir -p /tmp/served && head -c {RSYNC_MIB * MIB} /dev/urandom >/tmp/served/file && "
                  "printf '[files]\\npath = /tmp/served\\nuse chroot = no\\n' >/tmp/rsyncd.conf")
    server = bench.b.spawn("exec sdpctl run --require -- rsync --daemon --no-detach --config=/tmp/rsyncd.conf "
                           f"--address={there} --port=7480")
    try:
        wait_for(lambda: bench.b.check("sdpctl ss -lH --sport 7480"), bench.limit(20), "rsync does not serve")
        bench.succeed(bench.a.spawn(
            f"exec sdpctl run --require -- rsync rsync://{there}:7480/files/file /tmp/fetched"), 60)
        sums = [vm.check(f"sha256sum <{path}")
                for vm, path in ((bench.a, "/tmp/fetched"), (bench.b, "/tmp/served/file"))]
        expect(sums[0] == sums[1], f"rsync has fetched another file: {sums}")
    finally:
        server.kill()
        server.wait(10)
        for vm in bench.vms:
            vm.run("rm -rf /tmp/fetched /tmp/served")
    by_sdp = carried(bench) - before
    expect(by_sdp >= RSYNC_MIB * MIB, f"SDP has carried {by_sdp} bytes")
    return by_sdp


def by_soft_roce(bench: Bench) -> int:
    """The part that any machine can run; returns the number of wrong bytes."""
    results = rates(bench)
    total, wrong = byte_check(bench)
    fetched = file_transfer(bench)
    print()
    print("Soft-RoCE, which any machine has: rates and latencies by qperf")
    print()
    print(f"  {'':<20}{'64 KiB messages':>18}{'1 byte, one way':>20}")
    for title, bandwidth, latency in results:
        print(f"  {title:<20}{bandwidth:>13.1f} MB/s{latency:>17.0f} us")
    (_, raw_bw, raw_lat), (_, sdp_bw, sdp_lat) = results[1], results[2]
    print(f"  {'SDP / raw RDMA':<20}{sdp_bw / raw_bw:>13.2f}     {sdp_lat / raw_lat:>17.2f}")
    print()
    print(f"  {total} bytes streamed on {CONNECTIONS} connections and compared: {wrong} wrong")
    print(f"  rsync, unchanged, has fetched a file of {RSYNC_MIB * MIB} bytes, and it is the same one: "
          f"{fetched} bytes by SDP")
    print()
    print("Soft-RoCE moves and checks each byte with the processor, so it is slower than TCP; "
          "judge SDP beside raw RDMA.")
    return wrong


class Row:
    """One transport: its rate in MB/s, microseconds of each side's processor for a MiB, and per MiB the
    counters of each side's module (empty for other transports).

    `busy` is the result of processor_time().
    """

    def __init__(self, rate: float, busy: list[float], mib: float,
                 counts: list[dict[str, float]] | None = None) -> None:
        self.rate = rate
        self.processor = [time * 1e6 / mib for time in busy]
        self.counts = counts

    def text(self) -> str:
        """The cells of the table."""
        cells = f"{self.rate:>8.0f}{self.processor[0]:>12.0f}{self.processor[1]:>11.0f}"
        if self.counts:
            sender, receiver = self.counts
            cells += (f"{sender['tx_copied_bytes']:>11.0f}{receiver['rx_copied_bytes']:>10.0f}"
                      f"{sender['pages_touched'] + receiver['absent_touched']:>9.1f}")
        return cells


def by_adapter(bench: Bench) -> dict[str, Row]:
    """Each way of moving a MiB between the machines' memory; returns rows by title."""
    rows: dict[str, Row] = {}
    load, peer = f"bw {MIB} --seconds {SECONDS}", bench.address(bench.b)

    def timed(title: str, measure: Callable[[], T]) -> tuple[T, list[float]]:
        say(f"  .. measuring {title} over the adapter")
        return processor_time(bench, measure)

    def moved(rate: float) -> float:
        return rate * SECONDS * 1e6 / MIB
    with Servers(bench) as servers, QperfServer(bench.b):
        for title, measure in {"TCP": functools.partial(servers.measure, "tcp", "bw", load),
                               "raw verbs": functools.partial(qperf, bench.a, peer, "rc_bw", MIB, SECONDS)}.items():
            rate, busy = timed(title, measure)
            rows[title] = Row(rate, busy, moved(rate))
        for name, (here, there) in MODES.items():
            measure = functools.partial(servers.measure, "sdp", "bw", f"{load} --peer-mode {there}", here)
            (rate, busy), counts = counting(bench, functools.partial(timed, name, measure))
            rows[name] = Row(rate, busy, moved(rate), counts)
    return rows


def show_adapter(bench: Bench, rows: Mapping[str, Row]) -> None:
    """Prints the table, and draws the picture."""
    copies = float(bench.a.check(f'python3 -c "{COPY}"'))
    print()
    print("The test adapter, an RDMA device that moves bytes by itself, as hardware does: 1 MiB at a time")
    print()
    print(f"  {'':<12}{'rate':>8}{'processor, us/MiB':>23}{'copied, KiB/MiB':>21}{'faults':>9}")
    print(f"  {'':<12}{'MB/s':>8}{'sender':>12}{'receiver':>11}{'sender':>11}{'receiver':>10}{'per MiB':>9}")
    for title, row in rows.items():
        print(f"  {title:<12}{row.text()}")
    least = min((name for name in MODES if name != "BSDP"), key=lambda name: sum(rows[name].processor))
    cost = {name: sum(row.processor) for name, row in rows.items()}
    print()
    print(f"  {least}, the cheapest way without a copy, takes {cost[least] / cost['TCP']:.2f} of TCP's processor time "
          f"and {cost[least] / cost['BSDP']:.2f} of BSDP's.")
    print()
    print("The adapter is a process beside the two machines (tools/adapter) that their kernels' own driver vmw_pvrdma")
    print("takes for an adapter of VMware's; it shows what is left for the processors to do, and not how fast any")
    print(f"hardware is: here it carries {rows['raw verbs'].rate:.0f} MB/s, and a machine's own processor copies "
          f"{copies:.0f} MB/s.")


def picture(rows: Mapping[str, Row], path: str) -> None:
    """Processor time and rates as bars."""
    bars(path, "A mebibyte from one program to another, over the test adapter",
         [("processor time, us/MiB", {"sender": {name: row.processor[0] for name, row in rows.items()},
                                      "receiver": {name: row.processor[1] for name, row in rows.items()}}),
          ("rate, MB/s", {"rate": {name: row.rate for name, row in rows.items()}})])


def demonstrate(bench: Bench) -> int:
    """The part with soft-RoCE, and the part with the adapter if the machines have it; returns the number of
    wrong bytes."""
    wrong = by_soft_roce(BySoftRoce(bench.kind, bench.vms))
    if bench.a.adapter == "pvrdma":
        rows = by_adapter(bench)
        show_adapter(bench, rows)
        path = os.path.join(os.environ["IB_SDP_CACHE"], "demo.svg")
        picture(rows, path)
        print(f"\nThe same as a picture: {path}")
    return wrong


def main() -> int:
    try:
        with machines(kernels()[0].with_pvrdma(), 2, "demo", apart=True) as vms:
            bench = Bench("stock", vms)
            for vm in vms:
                bench.load(vm)
            say("  ok ib_sdp loaded in both")
            print("Two virtual machines (QEMU, software emulation, one processor each) with Debian's unmodified")
            print("kernel and ib_sdp; all figures are measured just now.")
            wrong = demonstrate(bench)
            for vm in vms:
                bench.unload(vm)
            complaints = sum(len(klog.complaints(vm.log())) for vm in vms)
        print(f"The modules are unloaded; kernel logs: {f'{complaints} complaints' if complaints else 'clean'}.")
        return 1 if wrong or complaints else 0
    except (VmError, Failure) as error:
        say(f"demo: {error}")
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
