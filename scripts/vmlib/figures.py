# SPDX-License-Identifier: GPL-2.0
"""`scripts/bench figures`: the micro-benchmarks of the papers on SDP, as tables and as plots.

Balaji et al., ISPASS 2004, and Balaji, Bhagvat, Jin and Panda, IPDPS 2006, measured on machines whose adapters
were about as fast as their processors' copies. So the test adapter's link gets a rate that has such a proportion to
the machine's own copy rate.

What was measured is kept in results.json of the output folder. A run goes on where an earlier one with the same
module and programs has stopped.
"""

import dataclasses
import datetime
import functools
import hashlib
import itertools
import json
import os
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from .bench import Bench
from .machine import VmError
from .measuring import COPY, KIB, MIB, MODES, RAW, RAW_LATENCY, Servers, forced, heading, processor_time
from .plot import Series, lines
from .rates import QperfServer, qperf
from .setup import ADAPTER, say

FOLDER = os.path.join(os.environ.get("IB_SDP_CACHE", ""), "figures")
ROUNDS = 3
# Of one measurement of sdpbench or qperf.
SECONDS = 1
# Of one measurement with everything around it: 1245 measurements took 1340 s.
ALL_SECONDS = 1.1

# Link rate / copy rate. 2004: 825 MB/s of raw RDMA, copies of 1.5 GB/s. 2006: a link (MT25208, DDR) as fast as copies.
# Today: 200 to 400 Gb/s.
SETTINGS = {"2004": 0.55, "2006": 1.0, "today": 10.0}

WAYS = ("BSDP", "ZSDP", "AZ-SDP")
# The module chooses the way: what a program gets that asks for nothing.
AUTOMATIC = "SDP, automatic"
# Ways without a socket: tests of qperf.
VERBS = {**RAW, **RAW_LATENCY}
ALL_WAYS = (AUTOMATIC, "BSDP", "ZSDP", "AZ-SDP", "SinkAvail", "MSG_ZEROCOPY", "TCP", "TCP, MSG_ZEROCOPY", "rsockets")


@dataclasses.dataclass(frozen=True)
class Plan:
    """A figure: what is measured, and how it is drawn."""

    name: str
    title: str
    # What the x axis counts.
    axis: str
    # "bw" in MB/s or "lat" in us one way.
    what: str
    # sdpbench's command by the value on the x axis.
    loads: Mapping[str, str]
    ways: Sequence[str] = (*WAYS, "TCP")
    # What the papers say, as a sentence.
    papers: str = ""
    # AZ-SDP / ZSDP in the paper of 2006.
    gain: Series = dataclasses.field(default_factory=dict)
    # What the paper of 2004 has measured in its own setting, as parts of the link's rate.
    points: Series = dataclasses.field(default_factory=dict)

    @property
    def least(self) -> bool:
        """Whether less is better."""
        return self.what == "lat"

    @property
    def unit(self) -> str:
        return "us one way" if self.least else "MB/s"


def by_size(command: str, sizes: Sequence[int]) -> dict[str, str]:
    return {str(size): f"{command} {size}" for size in sizes}


# Microseconds between sends.
COMPUTATION = (0, 100, 200, 500, 1000, 2000)

# The curves of several connections and programs begin with one of them, although this load is the same in all: the
# speed of the emulator changes between them.
PLANS = (
    Plan("throughput", "One-way throughput", "bytes of a send", "bw",
         by_size("bw", [KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB]), ways=(*ALL_WAYS, *RAW),
         papers="AZ-SDP carries 1.35 times the bytes of ZSDP with medium messages (2006). SDP carries 2.7 times the "
                "bytes of TCP over IPoIB (2004), and takes 60 to 70% less processor time.",
         gain={"the paper of 2006": {str(size): 1.35 for size in (16 * KIB, 64 * KIB, 256 * KIB)}},
         points={"the paper of 2004, SDP": {str(64 * KIB): 0.57},
                 "the paper of 2004, TCP": {str(64 * KIB): 0.57 / 2.7}}),
    Plan("latency", "Ping-pong latency", "bytes", "lat", by_size("lat", [1, KIB, 4 * KIB, 16 * KIB, 64 * KIB]),
         ways=(*ALL_WAYS, *RAW_LATENCY)),
    Plan("computation", "Computation between sends of 64 KiB", "us of computation", "bw",
         {str(us): f"bw {64 * KIB} --compute {us}" for us in COMPUTATION},
         papers="AZ-SDP is 2.0 times as fast as ZSDP at best (2006).",
         gain={"the paper of 2006, at best": {str(us): 2.0 for us in COMPUTATION}}),
    Plan("computation-1m", "Computation between sends of 1 MiB", "us of computation", "bw",
         {str(us): f"bw {MIB} --compute {us}" for us in (0, 200, 1000, 2000, 5000)},
         papers="AZ-SDP loses nothing by 200 us of computation (2006)."),
    Plan("faults", "Page faults: the buffer of 64 KiB is overwritten after so many sends", "sends", "bw",
         {str(window): f"bw {64 * KIB} --overwrite {window}" for window in (1, 4, 8, 16, 32, 64)},
         ways=(AUTOMATIC, *WAYS, "TCP"),
         papers="AZ-SDP is slower than ZSDP with small windows; a page fault takes about 6 us (2006)."),
    Plan("hot-spot", "Hot spot: six clients at a time", "bytes", "lat",
         {str(size): f"clients 6 lat {size}" for size in (KIB, 16 * KIB, 64 * KIB)},
         papers="AZ-SDP takes less time than ZSDP (2006)."),
    Plan("multi-stream", "So many connections of one program, 64 KiB", "connections", "bw",
         {str(count): f"bw {64 * KIB} --streams {count}" for count in (1, 2, 4, 8)}),
    Plan("multi-client", "So many programs, 64 KiB", "programs", "bw",
         {str(count): f"clients {count} bw {64 * KIB}" for count in (1, 2, 4, 8)},
         papers="AZ-SDP carries more than ZSDP (2006)."),
    Plan("fan-in", "So many programs send to one thread, 64 KiB", "programs", "bw",
         {str(count): f"clients {count} bw {64 * KIB} --one-receiver" for count in (1, 2, 4, 8)}),
    Plan("fan-out", "One thread sends to so many connections by turns, 64 KiB", "connections", "bw",
         {str(count): f"bw {64 * KIB} --one-sender --streams {count}" for count in (1, 2, 4, 8)}),
)

# Of a way at one point: each round's figure, and the us of both machines' processors for a MiB; None for a
# measurement that failed.
Round: TypeAlias = list[float] | None
Measured: TypeAlias = dict[str, list[Round]]


class Results:
    """What a command has measured, by figure, setting, point and way; kept in a file."""

    def __init__(self, folder: str, made_of: str, command: str, name: str = "results.json") -> None:
        self.path = os.path.join(folder, name)
        self.made_of = made_of
        self.command = command
        self.since = self.until = str(datetime.date.today())
        self.copies = 0.0
        self.points: dict[str, Measured] = {}
        try:
            with open(self.path, encoding="utf-8") as file:
                kept = json.load(file)
        except (OSError, ValueError):
            return
        if kept["made_of"] == made_of:
            self.since, self.until = kept["since"], kept["until"]
            self.copies, self.points = kept["copies"], kept["points"]

    def measured(self) -> str:
        """When and how these were measured."""
        when = f"on {self.since}" if self.since == self.until else f"from {self.since} to {self.until}"
        return f"Measured {when} by: {self.command}"

    @staticmethod
    def key(figure: str, setting: str, point: str) -> str:
        return f"{figure}/{setting}/{point}"

    def get(self, figure: str, setting: str, point: str) -> Measured:
        return self.points.get(self.key(figure, setting, point), {})

    def lacks(self, figure: str, setting: str, point: str, ways: Iterable[str]) -> bool:
        """Whether one of the ways was not measured yet at a point, or one of its measurements failed."""
        measured = self.get(figure, setting, point)
        return any(None in measured.get(way, [None]) for way in ways)

    def keep(self, figure: str, setting: str, point: str, measured: Measured) -> None:
        self.points[self.key(figure, setting, point)] = measured
        self.until = str(datetime.date.today())
        with open(f"{self.path}.new", "w", encoding="utf-8") as file:
            json.dump({"made_of": self.made_of, "since": self.since, "until": self.until,
                       "copies": self.copies, "points": self.points}, file, indent=0)
        os.replace(f"{self.path}.new", self.path)

    def measure_copies(self, bench: Bench) -> None:
        """Measures a processor's copy rate in MB/s, once for all points."""
        if not self.copies:
            self.copies = statistics.median(float(bench.a.check(f'python3 -c "{COPY}"')) for _ in range(5))


def made_of() -> str:
    """What the machines and the adapter are made of: other measurements cannot be compared."""
    with open(ADAPTER, "rb") as program:
        adapter = hashlib.sha256(program.read()).hexdigest()
    # The images' names contain hashes of what they were made of, but also folders of this machine.
    images = " ".join(os.path.basename(word) for word in os.environ["IB_SDP_IMAGES"].split())
    return f"{images} adapter {adapter} {os.environ.get('IB_SDP_ADAPTER', '')}"


def measurement(bench: Bench, servers: Servers, way: str, what: str, load: str) -> Callable[[], float]:
    """One measurement of a way."""
    if way in VERBS:
        size = int(load.split()[1])
        return functools.partial(qperf, bench.a, bench.address(bench.b), VERBS[way], size, SECONDS)
    if way in MODES:
        return functools.partial(forced, servers, way, what, load)
    transport = {AUTOMATIC: "sdp", "rsockets": "rsockets"}.get(way, "tcp")
    return functools.partial(servers.measure, transport, what, f"{load} --seconds {SECONDS}",
                             options="--zerocopy" if "ZEROCOPY" in way else "")


def measure(bench: Bench, servers: Servers, plan: Plan, load: str, rounds: int) -> Measured:
    """All ways at one point, in turns."""
    measured: Measured = {}
    for number in range(rounds):
        for way in plan.ways:
            try:
                got, busy = processor_time(bench, measurement(bench, servers, way, plan.what, load))
            except VmError as error:
                say(f"  .. {plan.name}, {way}, round {number + 1}: {error}")
                measured.setdefault(way, []).append(None)
                continue
            mib = got * SECONDS * 1e6 / MIB if plan.what == "bw" else 0
            measured.setdefault(way, []).append([got, *(time * 1e6 / mib if mib else 0 for time in busy)])
    return measured


def done(rounds: Sequence[Round], column: int = 0) -> list[float]:
    """What the rounds have measured that did not fail."""
    return [values[column] for values in rounds if values]


def medians(measured: Measured, column: int = 0) -> dict[str, float]:
    return {way: statistics.median(done(rounds, column)) for way, rounds in measured.items() if done(rounds)}


def against_best(measured: Measured, one: str, others: Sequence[str], least: bool) -> float | None:
    """The median over the rounds of `one` in comparison to the best of the others: for latencies, the least one.
    None if no round has both."""
    best = min if least else max
    got = []
    for number, values in enumerate(measured.get(one, [])):
        against = done([measured[other][number] for other in others if other in measured])
        if values and against:
            got.append(values[0] / best(against))
    return statistics.median(got) if got else None


def quotient(measured: Measured, one: str, others: Sequence[str], least: bool) -> str:
    """The same as a cell of a table."""
    value = against_best(measured, one, others, least)
    return "-" if value is None else f"{value:.2f}"


def costs(measured: Measured) -> Measured:
    """Each round's us of both machines' processors together for a MiB."""
    return {way: [values and [sum(values[1:])] for values in rounds] for way, rounds in measured.items()}


def comparisons(plan: Plan, cells: Sequence[Measured]) -> dict[str, list[str]]:
    """The rows of a table that compare ways."""
    def row(one: str, others: Sequence[str]) -> list[str]:
        return [quotient(cell, one, others, plan.least) for cell in cells]
    rows = {"AZ-SDP / ZSDP": row("AZ-SDP", ["ZSDP"])}
    for name, points in plan.gain.items():
        rows[f"  {name}"] = [f"{points[point]:.2f}" if point in points else "" for point in plan.loads]
    if AUTOMATIC in plan.ways:
        rows["automatic / best"] = row(AUTOMATIC, [way for way in plan.ways if way in MODES and way != "MSG_ZEROCOPY"])
        rows["automatic / TCP"] = row(AUTOMATIC, ["TCP"])
        if plan.what == "bw":
            rows["automatic / TCP, processor time"] = [
                quotient(costs(cell), AUTOMATIC, ["TCP"], least=True) for cell in cells]
        raw = [way for way in plan.ways if way in VERBS]
        if raw:
            rows["automatic / raw"] = row(AUTOMATIC, raw)
    return rows


def stated(plan: Plan, setting: str, results: Results) -> Series:
    """The points of the paper of 2004 in its own setting, in MB/s of our link."""
    if setting != "2004":
        return {}
    rate = SETTINGS[setting] * results.copies
    return {name: {point: part * rate for point, part in points.items()} for name, points in plan.points.items()}


def table(plan: Plan, setting: str, results: Results) -> str:
    """A figure's medians with the least and the most, the papers' points, and what is compared."""
    cells = [results.get(plan.name, setting, point) for point in plan.loads]
    rows: dict[str, list[str]] = {"": list(plan.loads)}
    for way in plan.ways:
        got = [done(measured.get(way, [])) for measured in cells]
        rows[way] = [f"{statistics.median(values):.1f} ({min(values):.1f}-{max(values):.1f})" if values else "-"
                     for values in got]
    for name, points in stated(plan, setting, results).items():
        rows[name] = [f"{points[point]:.1f}" if point in points else "" for point in plan.loads]
    rows |= comparisons(plan, cells)
    title = f"{plan.title}; {plan.unit}, by {plan.axis}"
    title += f"; the setting of {setting}" if setting.isdigit() else f"; {setting}'s setting"
    text = f"{title}\n{'-' * len(title)}\n"
    if plan.papers:
        text += f"The papers: {plan.papers}\n"
    width = max(map(len, rows))
    for name, row in rows.items():
        text += (f"{name:<{width}}" + "".join(f"{cell:>26}" for cell in row)).rstrip() + "\n"
    return text


def series(plan: Plan, setting: str, results: Results, column: int = 0) -> Series:
    """The medians by way and point."""
    points = {point: medians(results.get(plan.name, setting, point), column) for point in plan.loads}
    return {way: {point: values[way] for point, values in points.items() if way in values} for way in plan.ways}


def draw(plan: Plan, setting: str, results: Results, folder: str) -> None:
    """A figure's plots: the figure, and for throughput what it costs both machines' processors."""
    of = f" ({setting})"
    name = os.path.join(folder, f"{plan.name}-{setting}")
    made = results.measured()
    lines(f"{name}.svg", f"{plan.title}{of}", made, plan.axis, plan.unit,
          {**series(plan, setting, results), **stated(plan, setting, results)})
    if plan.name == "throughput":
        sender, receiver = (series(plan, setting, results, column) for column in (1, 2))
        both = {way: {point: value + receiver[way][point] for point, value in points.items()}
                for way, points in sender.items()}
        lines(f"{name}-cost.svg", f"Processor time of both machines{of}", made, plan.axis, "us per MiB", both,
              both_logarithmic=True)


def draw_gain(plan: Plan, results: Results, folder: str) -> None:
    """AZ-SDP in comparison to ZSDP in all settings of a figure, with the paper's points."""
    gains: dict[str, dict[str, float]] = {}
    for setting in SETTINGS:
        values = {point: against_best(results.get(plan.name, setting, point), "AZ-SDP", ["ZSDP"], plan.least)
                  for point in plan.loads}
        gains[setting] = {point: value for point, value in values.items() if value is not None}
    lines(os.path.join(folder, f"{plan.name}-gain.svg"), f"{plan.title}: AZ-SDP / ZSDP", results.measured(), plan.axis,
          "ratio of times" if plan.least else "ratio of rates", {**gains, **plan.gain})


def head(results: Results, rates: Mapping[str, float], rounds: int) -> str:
    """What is true of all tables."""
    carried = ", ".join(f"{rate:.0f} MB/s in the setting {name}" for name, rate in rates.items())
    return (f"{results.measured()}\n"
            f"Medians (least-most) of {rounds} rounds.\nA machine's processor copies {results.copies:.0f} MB/s.\n"
            f"Each link carries {carried}.\n")


# A point of a figure in a setting.
Point: TypeAlias = tuple[Plan, str, str]


def lacking(results: Results) -> list[Point]:
    """What is not kept yet."""
    return [(plan, setting, point) for plan in PLANS for setting in SETTINGS for point in plan.loads
            if results.lacks(plan.name, setting, point, plan.ways)]


def minutes(points: Iterable[Point], rounds: int) -> float:
    """About how long the points take."""
    return sum(len(plan.ways) for plan, _, _ in points) * rounds * ALL_SECONDS / 60


def figures(bench: Bench, folder: str = FOLDER, rounds: int = ROUNDS) -> None:
    """Measures the points that are not kept yet, prints all tables, and draws the plots."""
    os.makedirs(folder, exist_ok=True)
    results = Results(folder, f"{made_of()} {rounds} rounds", f"scripts/bench figures --rounds {rounds}")
    results.measure_copies(bench)
    rates = {setting: part * results.copies for setting, part in SETTINGS.items()}
    text = head(results, rates, rounds)
    print(text, flush=True)
    missing = lacking(results)
    say(f"  .. {len(missing)} points to measure, about {minutes(missing, rounds):.0f} minutes")
    number = itertools.count(1)
    for plan in PLANS:
        for setting in SETTINGS:
            here = [point for of, where, point in missing if of is plan and where == setting]
            if here:
                bench.adapter.ask("rate", f"{rates[setting] * 8:.0f}M")
                with Servers(bench) as servers, QperfServer(bench.b):
                    for point in here:
                        say(f"  .. {next(number)} of {len(missing)}: {plan.title}, {setting}: {point} {plan.axis}")
                        measured = measure(bench, servers, plan, plan.loads[point], rounds)
                        results.keep(plan.name, setting, point, measured)
            shown = table(plan, setting, results)
            print(shown, flush=True)
            text += f"\n{shown}"
            # A run that is stopped later has this much.
            with open(os.path.join(folder, "tables.txt"), "w", encoding="utf-8") as file:
                file.write(text)
            draw(plan, setting, results, folder)
        draw_gain(plan, results, folder)
    heading(f"The tables and the plots are in {folder}")
