# SPDX-License-Identifier: GPL-2.0
"""`scripts/bench where`: the functions in which the machines' processors are while bytes move.

QEMU's monitor is asked many times a second for the instruction pointer of each machine's processor. This
does not disturb the machine, and interrupt handlers are sampled like other code.
"""

import collections
import functools
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Self, TypeAlias

from .bench import Bench
from .machine import Vm, VmError
from .measuring import MIB, MODES, Servers, heading
from .setup import say

# Samples by function and owner (the kernel, a module, the programs, idle).
Counts: TypeAlias = collections.Counter[tuple[str, str]]
# Samples by instruction pointer, which is None for an idle processor.
Places: TypeAlias = collections.Counter[int | None]

SECONDS = 8
INTERVAL = 0.002
SHOWN = 25
PROMPT = b"(qemu) "

# Runs in the machine: reads a line for each address, in order, and prints the function that
# contains it.
RESOLVE = """
symbols = sorted((int(word[0], 16), word[2], word[3] if len(word) > 3 else "[kernel]")
                 for word in map(str.split, open("/proc/kallsyms")) if word[1] in "tTwW")
at = 0
for line in open("/tmp/where"):
    address = int(line, 16)
    while at + 1 < len(symbols) and symbols[at + 1][0] <= address:
        at += 1
    print(symbols[at][1], symbols[at][2].strip("[]"))
"""


class Monitor:
    """QEMU's monitor of a machine."""

    def __init__(self, vm: Vm) -> None:
        self.vm = vm
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10)
        self.socket.connect(vm.monitor_path)
        self._read()

    def _read(self) -> bytes:
        got = b""
        while not got.endswith(PROMPT):
            more = self.socket.recv(65536)
            if not more:
                raise VmError(f"{self.vm.name}: the monitor ends")
            got += more
        return got

    def where(self) -> int | None:
        """The instruction pointer, or None for an idle processor."""
        self.socket.sendall(b"info registers\n")
        text = self._read()
        pointer, halted = re.search(rb"RIP=([0-9a-f]{16})", text), re.search(rb"HLT=(\d)", text)
        if not pointer or not halted:
            raise VmError(f"{self.vm.name}: the monitor knows no registers")
        return None if halted[1] == b"1" else int(pointer[1], 16)

    def close(self) -> None:
        self.socket.close()


class Sampler(threading.Thread):
    """Samples the instruction pointer of a machine's processor for the duration of a `with` block."""

    def __init__(self, vm: Vm) -> None:
        super().__init__(daemon=True)
        self.vm = vm
        self.places: Places = collections.Counter()
        self.error: Exception | None = None
        self.over = threading.Event()

    def run(self) -> None:
        monitor = Monitor(self.vm)
        try:
            while not self.over.wait(INTERVAL):
                self.places[monitor.where()] += 1
        except (OSError, VmError) as error:
            self.error = error
        finally:
            monitor.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.join()

    def counts(self) -> Counts:
        """The samples, by function."""
        if self.error:
            raise VmError(f"{self.vm.name}: sampling ended: {self.error}")
        return resolved(self.vm, self.places)


def resolved(vm: Vm, places: Places) -> Counts:
    counts: Counts = collections.Counter()
    kernel = sorted(place for place in places if place is not None and place >= 1 << 63)
    vm.check("cat >/tmp/where <<'END'\n" + "\n".join(f"{place:x}" for place in kernel) + "\nEND\n")
    vm.check(f"cat >/tmp/resolve.py <<'END'{RESOLVE}END\n")
    lines = vm.check("python3 /tmp/resolve.py", 120).splitlines()
    for pointer, line in zip(kernel, lines, strict=True):
        name, owner = line.split()
        counts[name, owner] += places[pointer]
    for place, count in places.items():
        if place is None:
            counts["idle", "idle"] += count
        elif place < 1 << 63:
            counts["a program", "programs"] += count
    return counts


def readable(names: Iterable[str]) -> list[str]:
    """Rust's names as in the source."""
    result = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    # Without hashes and generic arguments a name fits into a line.
    return [re.sub(r"\[[0-9a-f]+\]", "", line) for line in result.stdout.splitlines()]


def table(counts: Counts) -> None:
    """The functions that take most of the time that is not idle, and shares by owner."""
    busy: Counts = collections.Counter({key: count for key, count in counts.items() if key[1] != "idle"})
    total = max(1, sum(busy.values()))
    owners: collections.Counter[str] = collections.Counter()
    for (_, owner), count in busy.items():
        owners[owner] += count
    print(f"    {total} of {sum(counts.values())} samples were not idle: "
          + ", ".join(f"{owner} {100 * count / total:.0f}%" for owner, count in owners.most_common(8)))
    most = busy.most_common(SHOWN)
    for ((_, owner), count), name in zip(most, readable([name for (name, _), _ in most]), strict=True):
        print(f"    {100 * count / total:6.1f}%  {owner:<14}{name[:110]}")


def where(bench: Bench) -> None:
    """Each way with messages of a MiB, sender and receiver."""
    with Servers(bench) as servers:
        load = f"bw {MIB} --seconds {SECONDS}"
        ways: Mapping[str, Callable[[], float]] = {
            "TCP": functools.partial(servers.measure, "tcp", "bw", load)} | {
            name: functools.partial(servers.measure, "sdp", "bw", f"{load} --peer-mode {there}", here)
            for name, (here, there) in MODES.items()}
        for name, measure in ways.items():
            say(f"  .. sampling {name}")
            with Sampler(bench.a) as sender, Sampler(bench.b) as receiver:
                rate = measure()
            counts = [sampler.counts() for sampler in (sender, receiver)]
            heading(f"{name}, {MIB} bytes at a time: {rate:.0f} MB/s")
            for side, count in zip(("sender", "receiver"), counts, strict=True):
                print(f"  {side}")
                table(count)
