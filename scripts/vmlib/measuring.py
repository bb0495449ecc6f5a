# SPDX-License-Identifier: GPL-2.0
"""Code shared by the parts of `make bench`: figures, and sdpbench in two machines."""

import re
import statistics
import time
from collections.abc import Callable, Mapping
from typing import ClassVar, Self, TypeVar

from .bench import Bench
from .machine import Job, VmError
from .setup import say

T = TypeVar("T")

ROUNDS = 5
KIB = 1 << 10
MIB = 1 << 20
# LD_PRELOAD turns the sockets of a program into rsockets.
PRELOAD = "LD_PRELOAD=/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so"
# The modes of both sides' calls, by their names in tables.
MODES = {"BSDP": ("copy", "copy"), "ZSDP": ("sync", "sync"), "AZ sends": ("async", "sync"),
         "AZ-SDP": ("async", "async"), "SinkAvail": ("sink", "sink"),
         # The modes do not affect these sends.
         "MSG_ZEROCOPY": ("async --zerocopy", "sync")}
# The same by verbs without a socket: tests of qperf.
RAW = {"raw Read": "rc_rdma_read_bw", "raw Write": "rc_rdma_write_bw"}
RAW_LATENCY = {"raw Send": "rc_lat"}
# The module's counters per MiB of payload, with their names in tables: the sender's, the
# receiver's.
COUNTED = ({"tx_copied_bytes": "KiB copied", "pages_touched": "faults", "tlb_flush": "flushes",
            "send_posted": "messages", "request_done": "requests"},
           {"rx_copied_bytes": "KiB copied", "absent_touched": "faults", "tlb_flush": "flushes",
            "wake_reader": "wake-ups", "request_done": "requests"})


# Copies a MiB from one buffer to another for a second, as the buffers of sockets are copied: MB/s.
COPY = ("import time; here, there, n, began = bytearray(1 << 20), memoryview(bytearray(1 << 20)), 0, time.monotonic()\n"
        "while time.monotonic() < began + 1: there[:] = here; n += 1\n"
        "print(n * 1.048576 / (time.monotonic() - began))")


class Figure:
    """Measurements of one quantity."""

    def __init__(self, values: list[float]) -> None:
        self.values = values

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def __str__(self) -> str:
        return f"{self.median:10.2f} ({min(self.values):.2f} to {max(self.values):.2f})"


def in_turns(measurements: Mapping[str, Callable[[], float]], rounds: int = ROUNDS) -> dict[str, Figure]:
    """Measures each of the named functions in turns; returns name to Figure."""
    values: dict[str, list[float]] = {name: [] for name in measurements}
    for number in range(rounds):
        for name, measure in measurements.items():
            try:
                values[name].append(measure())
            except VmError as error:
                say(f"  .. {name}, round {number + 1}: {error}")
    return {name: Figure(got) for name, got in values.items() if got}


def ratios(figures: Mapping[str, Figure], one: str, other: str) -> list[float]:
    """The ratios of each round: values that are measured one after the other have about the same speed of the
    emulator."""
    if one not in figures or other not in figures:
        return []
    # One list may be shorter, because failed measurements are left out.
    return [a / b for a, b in zip(figures[one].values, figures[other].values, strict=False)]


def ratio(figures: Mapping[str, Figure], one: str, other: str) -> str:
    """The median of the rounds' ratios."""
    got = ratios(figures, one, other)
    return f"{statistics.median(got):.2f} ({min(got):.2f} to {max(got):.2f})" if got else "not measured"


def heading(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


class Servers:
    """sdpbench's servers for each transport for the length of a `with` block."""

    PORTS: ClassVar = {"sdp": 7501, "rsockets": 7502, "tcp": 7503}

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.jobs: list[Job] = []

    def prefix(self, name: str, mode: str | None = None, options: str = "") -> str:
        environment = PRELOAD if name == "rsockets" else ""
        family = "sdp" if name == "sdp" else "tcp"
        option = f"--mode {mode} " if mode else ""
        return (f"{environment} exec sdpbench --family {family} {option}{options} "
                f"{self.bench.address(self.bench.b)}:{self.PORTS[name]}")

    def __enter__(self) -> Self:
        for name in self.PORTS:
            job = self.bench.b.spawn(f"{self.prefix(name)} serve")
            end = time.monotonic() + 20
            while not job.lines and not job.ended.is_set() and time.monotonic() < end:
                time.sleep(0.1)
            if job.lines[:1] != ["serving"]:
                raise VmError(f"sdpbench's server for {name} did not start: {job.output}")
            self.jobs.append(job)
        return self

    def __exit__(self, *_: object) -> None:
        for job in self.jobs:
            job.kill()
            job.wait(10)

    def measure(self, name: str, what: str, arguments: str, mode: str | None = None, options: str = "") -> float:
        """One measurement: `options` go before the command of sdpbench, `arguments` are the command and its own."""
        result = self.bench.a.run(f"{self.prefix(name, mode, options)} {arguments}", 120)
        match = re.search(rf"^{what} ([\d.]+)", result.output, re.MULTILINE)
        if not result.ok or not match:
            raise VmError(f"sdpbench {arguments} over {name} ended with {result.rc}: {result.output}")
        return float(match[1])


def forced(servers: Servers, way: str, what: str, load: str) -> float:
    """One measurement of a way that both sides are forced to use."""
    here, there = MODES[way]
    return servers.measure("sdp", what, f"{load} --seconds 1 --peer-mode {there}", here)


def counting(bench: Bench, measure: Callable[[], T]) -> tuple[T, list[dict[str, float]]]:
    """The result of `measure`, and the increments of the sender's and the receiver's counters per MiB."""
    before = [bench.stats(vm) for vm in bench.vms]
    result = measure()
    grown = [{name: value - old[name] for name, value in bench.stats(vm).items()}
             for vm, old in zip(bench.vms, before, strict=True)]
    mib = max(1, grown[0]["tx_bytes"] + grown[0]["tx_zcopy_bytes"]) / MIB
    return result, [{name: counts[name] / mib / (1024 if name.endswith("bytes") else 1) for name in names}
                    for counts, names in zip(grown, COUNTED, strict=True)]


def with_mode(bench: Bench, servers: Servers, modes: tuple[str, str],
              arguments: str) -> tuple[float, list[dict[str, float]]]:
    """One measurement of a way: the rate, and the counters."""
    return counting(bench, lambda: servers.measure("sdp", "bw", f"{arguments} --peer-mode {modes[1]}", modes[0]))


def processor_time(bench: Bench, work: Callable[[], T]) -> tuple[T, list[float]]:
    """Calls `work`; returns its result, and the processor time that each machine took for it, in seconds."""
    before = [vm.guest_seconds() for vm in bench.vms]
    result = work()
    return result, [vm.guest_seconds() - old for vm, old in zip(bench.vms, before, strict=True)]
