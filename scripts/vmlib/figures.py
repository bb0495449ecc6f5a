# SPDX-License-Identifier: GPL-2.0
"""The figures of the papers on SDP, and the sizes from which on a way without a copy is faster."""

import functools
import statistics

from .bench import Bench
from .measuring import KIB, MIB, MODES, ROUNDS, Servers, forced, heading, in_turns, ratio, ratios

CROSSOVER_SIZES = [16384 << n for n in range(9)]


def crossover(bench: Bench) -> None:
    """For SDP_ZCOPY_THRESH: the sizes from which on the ways without a copy are faster than copying."""
    heading(f"Throughput against BSDP's, by bytes of a send; median of {ROUNDS} (least to most)")
    ways = [way for way in MODES if way != "BSDP"]
    print(f"  {'':>8}  {'BSDP, MB/s':<32}" + "".join(f"{way:<24}" for way in ways))
    first: dict[str, int] = {}
    with Servers(bench) as servers:
        for size in CROSSOVER_SIZES:
            got = in_turns({way: functools.partial(forced, servers, way, "bw", f"bw {size}") for way in MODES})
            print(f"  {size:>8}  {got.get('BSDP', 'not measured')!s:<32}"
                  + "".join(f"{ratio(got, way, 'BSDP'):<24}" for way in ways), flush=True)
            for way in ways:
                against = ratios(got, way, "BSDP")
                if against and statistics.median(against) >= 1:
                    first.setdefault(way, size)
                else:
                    first.pop(way, None)
    for way in ways:
        print(f"  {way}: " + (f"as fast or faster from {first[way]} bytes on" if way in first
                             else f"slower up to {CROSSOVER_SIZES[-1]} bytes"))


# The papers' figures: title, output, the loads and their names, and the papers' results.
FIGURE_SIZES = [1, KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB]
FIGURES = (
    ("Ping-pong latency; us one way, by bytes", "lat",
     [(f"{size}", f"lat {size}") for size in FIGURE_SIZES], None),
    ("One-way throughput; MB/s, by bytes of a send", "bw",
     [(f"{size}", f"bw {size}") for size in FIGURE_SIZES], "AZ-SDP / ZSDP 1.35 for medium messages"),
    ("Computation between sends of 64 KiB; MB/s, by us of it", "bw",
     [(f"{us}", f"bw {64 * KIB} --compute {us}") for us in (0, 50, 100, 200, 500, 2000)],
     "AZ-SDP / ZSDP 2.0 at best"),
    ("Computation between sends of 1 MiB; MB/s, by us of it", "bw",
     [(f"{us}", f"bw {MIB} --compute {us}") for us in (0, 200, 2000)], "no loss against ZSDP at 200 us"),
    ("Page faults: the buffer of 64 KiB is overwritten after so many sends; MB/s", "bw",
     [(f"{window}", f"bw {64 * KIB} --overwrite {window}") for window in (1, 2, 4, 8, 16, 32, 64, 128)],
     "AZ-SDP is below ZSDP for small windows"),
    ("Hot spot: six clients at a time; us one way, by bytes", "lat",
     [(f"{size}", f"clients 6 lat {size}") for size in (KIB, 16 * KIB, 64 * KIB)], "AZ-SDP is better than ZSDP"),
    ("Multi-stream: so many connections of one program, 64 KiB; MB/s", "bw",
     [(f"{count}", f"bw {64 * KIB} --streams {count}") for count in (1, 2, 4, 8)], None),
    ("Multi-client: so many programs, 64 KiB; MB/s", "bw",
     [(f"{count}", f"clients {count} bw {64 * KIB}") for count in (2, 4, 8)], "AZ-SDP is better than ZSDP"),
    ("Fan-in: so many programs send to one thread, 64 KiB; MB/s", "bw",
     [(f"{count}", f"clients {count} bw {64 * KIB} --one-receiver") for count in (2, 4, 8)], None),
    ("Fan-out: one thread sends to so many connections by turns, 64 KiB; MB/s", "bw",
     [(f"{count}", f"bw {64 * KIB} --one-sender --streams {count}") for count in (2, 4, 8)], None),
)


def figures(bench: Bench) -> None:
    """The micro-benchmarks of the papers on SDP: each way forced, and TCP."""
    ways = ["BSDP", "ZSDP", "AZ-SDP"]
    for title, what, loads, claim in FIGURES:
        heading(f"{title}; median of {ROUNDS} (least to most)")
        if claim:
            print(f"  The papers: {claim}.")
        print(f"  {'':>8}  " + "".join(f"{name:<32}" for name in [*ways, "TCP"]) + "AZ-SDP/ZSDP")
        with Servers(bench) as servers:
            for name, load in loads:
                got = in_turns({way: functools.partial(forced, servers, way, what, load) for way in ways}
                               | {"TCP": functools.partial(servers.measure, "tcp", what, f"{load} --seconds 1")})
                cells = "".join(f"{got.get(way, 'not measured')!s:<32}" for way in [*ways, "TCP"])
                print(f"  {name:>8}  {cells}{ratio(got, 'AZ-SDP', 'ZSDP')}", flush=True)
