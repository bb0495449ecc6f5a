# SPDX-License-Identifier: GPL-2.0
"""Programs of others that have spoken AF_INET_SDP for years (see scripts/netperf)."""

import contextlib
import io
import re
from collections.abc import Mapping

from vmlib.bench import Bench, expect, test, wait_for
from vmlib.demo import demonstrate
from vmlib.rates import PATIENT


def counted(bench: Bench, before: Mapping[str, int], least_bytes: int) -> None:
    """The module itself must have carried the bytes: no silent use of TCP."""
    after = bench.stats(bench.a)
    moved = sum(after[name] - before[name] for name in ("tx_bytes", "rx_bytes"))
    expect(moved >= least_bytes, f"the module counted {moved} bytes, expected at least {least_bytes}")


def qperf(bench: Bench, arguments: str, unit: str) -> None:
    before = bench.stats(bench.a)
    server = bench.b.spawn("exec qperf")
    try:
        output = bench.succeed(bench.a.spawn(
            f"exec qperf {bench.address(bench.b)} {PATIENT} -t 2 {arguments}"), 60)
    finally:
        server.kill()
    match = re.search(rf"{unit}\s*=\s*([\d.]+)", output)
    expect(match and float(match[1]) > 0, f"no rate in the output:\n{output}")
    counted(bench, before, 1)


@test(core=("stock",))
def qperf_sdp_bw(bench: Bench) -> None:
    qperf(bench, "-m 64k sdp_bw", "bw")


@test(core=("stock",))
def qperf_sdp_bw_small(bench: Bench) -> None:
    qperf(bench, "-m 37 sdp_bw", "bw")


@test(core=("stock",))
def qperf_sdp_lat(bench: Bench) -> None:
    qperf(bench, "-m 1 sdp_lat", "latency")


def netperf(bench: Bench, name: str, least_bytes: int) -> None:
    before = bench.stats(bench.a)
    server = bench.b.spawn("exec netserver -D")
    try:
        output = bench.succeed(bench.a.spawn(
            f"for i in 1 2 3 4 5 6 7 8 9 10; do netperf -H {bench.address(bench.b)} -t {name} -l 2 && exit 0; "
            "sleep 1; done; exit 1"), 120)
    finally:
        server.kill()
    figures = re.findall(r"\d+\.\d+", output)
    expect(figures and any(float(f) > 0 for f in figures), f"no rate in the output:\n{output}")
    counted(bench, before, least_bytes)


@test(core=("stock",))
def netperf_stream(bench: Bench) -> None:
    netperf(bench, "SDP_STREAM", 1 << 16)


@test(core=("stock",))
def netperf_maerts(bench: Bench) -> None:
    netperf(bench, "SDP_MAERTS", 1 << 16)


@test(core=("stock",))
def netperf_rr(bench: Bench) -> None:
    netperf(bench, "SDP_RR", 2)


@test(kinds=("stock",))
def demonstration(bench: Bench) -> None:
    """What `make demo` does by soft-RoCE, with its figures."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        wrong = demonstrate(bench)
    expect(wrong == 0, f"{wrong} wrong bytes")
    rates = re.findall(r"[\d.]+ MB/s", shown.getvalue())
    expect(len(rates) == 3 and all(float(rate.split()[0]) > 0 for rate in rates), shown.getvalue())


@test(core=("stock",))
def micro_benchmarks(bench: Bench) -> None:
    """Those of the papers that have several connections, or programs, at a time."""
    address = f"{bench.address(bench.b)}:7501"
    server = bench.b.spawn(f"exec sdpbench --family sdp {address} serve")
    try:
        wait_for(lambda: server.lines, bench.limit(20), "sdpbench's server says nothing")
        for load in ("bw 65536 --streams 4", "bw 65536 --streams 4 --one-sender", "clients 3 bw 65536",
                     "clients 3 bw 65536 --one-receiver", "clients 3 lat 65536"):
            for mode in ("copy", "sync", "async", "sink"):
                before = bench.stats(bench.a)
                output = bench.succeed(bench.a.spawn(
                    f"exec sdpbench --family sdp --mode {mode} {address} {load} --seconds 0.3 --peer-mode {mode}"), 60)
                figure = re.search(r"^(?:bw|lat) ([\d.]+)", output)
                expect(figure and float(figure[1]) > 0, f"{load}: no figure in the output:\n{output}")
                counted(bench, before, 1)
    finally:
        server.kill()
