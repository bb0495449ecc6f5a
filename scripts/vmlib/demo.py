# SPDX-License-Identifier: GPL-2.0
"""`make demo`: two machines exchange data over TCP, raw RDMA and SDP."""

import re
import sys

from . import klog
from .bench import Bench, Failure
from .measuring import COUNTED, MODES, Servers, with_mode
from .machine import VmError
from .rates import QperfServer, qperf
from .setup import kernels, machines, say

# A mebibyte each way on each of 16 connections; enough to meet every path.
CONNECTIONS = 16
BYTES = 1 << 20

ROWS = [
    ("TCP", "tcp_bw", "tcp_lat"),
    ("raw RDMA (verbs)", "rc_bw", "rc_lat"),
    ("SDP (AF_INET_SDP)", "sdp_bw", "sdp_lat"),
]


def rates(bench):
    peer = bench.address(bench.b)
    results = []
    with QperfServer(bench.b):
        for title, bandwidth, latency in ROWS:
            say(f"  .. measuring {title} with qperf")
            results.append((title, qperf(bench.a, peer, bandwidth, 65536), qperf(bench.a, peer, latency, 1)))
    return results


def ways(bench):
    """The ways that SDP has, each forced."""
    results = {}
    with Servers(bench) as servers:
        for name, modes in MODES.items():
            say(f"  .. measuring the ways of SDP: {name}")
            results[name] = with_mode(bench, servers, modes, f"bw {1 << 20} --seconds 3")
    return results


def byte_check(bench):
    """Both ways at once, seeded data, every byte compared by the receiver."""
    say(f"  .. streaming both ways on {CONNECTIONS} connections, checking every byte")
    server = bench.stream(bench.b, "listen", 7400, CONNECTIONS, BYTES)
    client = bench.stream(bench.a, "connect", 7400, CONNECTIONS, BYTES)
    outputs = [bench.succeed(job, 120) for job in (client, server)]
    checked = [re.search(r"byte-check: (\d+) bytes, (\d+) wrong", output) for output in outputs]
    if not all(checked):
        raise Failure("no byte-check in the output:\n" + "\n".join(outputs))
    return sum(int(m[1]) for m in checked), sum(int(m[2]) for m in checked)


def show(results, ways_of_sdp, total, wrong, carried):
    print()
    print("Two virtual machines (QEMU, software emulation, one processor each) with Debian's")
    print("unmodified kernel, soft-RoCE and ib_sdp; all figures measured just now, these by qperf:")
    print()
    print(f"  {'transport':<20}{'64 KiB messages':>18}{'1 byte, one way':>20}")
    print(f"  {'-' * 58}")
    for title, bandwidth, latency in results:
        print(f"  {title:<20}{bandwidth:>13.1f} MB/s{latency:>17.0f} us")
    (_, raw_bw, raw_lat), (_, sdp_bw, sdp_lat) = results[1], results[2]
    print(f"  {'SDP / raw RDMA':<20}{sdp_bw / raw_bw:>13.2f}     {sdp_lat / raw_lat:>17.2f}")
    print()
    print("The ways of SDP, 1 MiB at a time, by sdpbench; each side's counts per MiB:")
    print()
    for name, (rate, counts) in ways_of_sdp.items():
        print(f"  {name:<20}{rate:>13.1f} MB/s")
        for side, names, got in zip(("sends", "receives"), COUNTED, counts):
            print(f"  {side:>20}    " + ", ".join(f"{got[key]:.0f} {what}" for key, what in names.items()))
    print()
    print(f"  byte-check          {total} bytes received on {CONNECTIONS} connections, {wrong} wrong")
    print(f"  carried by ib_sdp   {carried} bytes, from its own counters")
    print()
    print("Emulated soft-RoCE is slower than emulated TCP; judge SDP against raw RDMA.")


def demonstrate(bench):
    """The whole, with the module loaded; returns how many bytes were wrong."""
    results = rates(bench)
    ways_of_sdp = ways(bench)
    total, wrong = byte_check(bench)
    stats = bench.stats(bench.a)
    carried = sum(stats[name] for name in ("tx_bytes", "tx_zcopy_bytes", "rx_bytes"))
    show(results, ways_of_sdp, total, wrong, carried)
    return wrong


def main():
    try:
        with machines(kernels()[0], 2, "demo") as vms:
            bench = Bench("stock", vms)
            for vm in vms:
                bench.load(vm)
            say("  ok ib_sdp loaded in both")
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
