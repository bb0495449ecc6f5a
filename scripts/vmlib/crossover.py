# SPDX-License-Identifier: GPL-2.0
"""Where a way without a copy begins to pay."""

import functools
import statistics

from .bench import Bench
from .measuring import MODES, ROUNDS, Servers, forced, heading, in_turns, ratio, ratios

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
