# SPDX-License-Identifier: GPL-2.0
"""The instructions that a machine has executed, by address, function and owner (see tools/profile)."""

import collections
import functools
import re
import socket
import subprocess
from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

from .bench import Bench
from .machine import Vm, VmError

T = TypeVar("T")
# Instructions by the address of their block.
Blocks: TypeAlias = collections.Counter[int]
# Instructions by function and owner (the kernel, a module, the programs).
Functions: TypeAlias = collections.Counter[tuple[str, str]]

MODULE = "ib_sdp"
PROGRAMS = "programs"
# The first address of the kernel.
KERNEL = 1 << 63
# The plugin counts here what it has no counter for.
OTHERS = (1 << 64) - 1

# Virtual seconds of two measurements whose difference is used.
SHORT, LONG = 1, 4
# Addresses in one command, whose length the kernel limits to 128 KiB.
LINES = 4096

# Runs in the machine: reads a line for each address, in order, and prints the function that
# contains it.
RESOLVE = """
symbols = sorted((int(word[0], 16), word[2], word[3] if len(word) > 3 else "[kernel]")
                 for word in map(str.split, open("/proc/kallsyms")) if word[1] in "tTwW")
at = 0
for line in open("/tmp/addresses"):
    address = int(line, 16)
    while at + 1 < len(symbols) and symbols[at + 1][0] <= address:
        at += 1
    print(symbols[at][1], symbols[at][2].strip("[]"))
"""


def executed(vm: Vm) -> Blocks:
    """The instructions so far."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(vm.profile_path)
        with connection.makefile(encoding="ascii") as lines:
            blocks = Blocks({int(address, 16): int(count) for address, count in map(str.split, lines)})
    if blocks[OTHERS]:
        raise VmError(f"{vm.name}: the plugin has fewer counters than the machine has blocks")
    return blocks


def counted(bench: Bench, work: Callable[[], T]) -> tuple[T, list[Blocks]]:
    """Calls `work`; returns its result, and the instructions of each machine."""
    before = [executed(vm) for vm in bench.vms]
    result = work()
    return result, [executed(vm) - old for vm, old in zip(bench.vms, before, strict=True)]


def counted_of_more(bench: Bench, work: Callable[[int], float]) -> tuple[float, list[Blocks]]:
    """Calls `work`, which takes seconds and returns the units of work that it did; returns the units that
    it did in the longer of two times and not in the shorter, and their instructions. The fixed costs, for
    starting and ending programs, are the same for few seconds as for many."""
    (few, less), (many, more) = (counted(bench, functools.partial(work, seconds)) for seconds in (SHORT, LONG))
    for blocks, fewer in zip(more, less, strict=True):
        # An operator of Counter would leave out negative counts.
        blocks.subtract(fewer)
    return many - few, more


def of_module(vm: Vm, blocks: Blocks) -> int:
    """The instructions of ib_sdp."""
    begins = {line.split()[0]: int(line.split()[5], 16) for line in vm.check("cat /proc/modules").splitlines()}
    if MODULE not in begins:
        raise VmError(f"{vm.name}: {MODULE} is not loaded")
    # A module's code is one range, which ends before the next module's range.
    first = begins[MODULE]
    end = min((begin for begin in begins.values() if begin > first), default=OTHERS)
    return sum(count for address, count in blocks.items() if first <= address < end)


def by_function(vm: Vm, blocks: Blocks) -> Functions:
    """The instructions of each function."""
    functions: Functions = collections.Counter()
    kernel = sorted(address for address in blocks if address >= KERNEL)
    vm.check(f"cat >/tmp/resolve.py <<'END'{RESOLVE}END\n: >/tmp/addresses")
    for first in range(0, len(kernel), LINES):
        some = "\n".join(f"{address:x}" for address in kernel[first:first + LINES])
        vm.check(f"cat >>/tmp/addresses <<'END'\n{some}\nEND\n")
    lines = vm.check("python3 /tmp/resolve.py", 120).splitlines()
    for address, line in zip(kernel, lines, strict=True):
        name, owner = line.split()
        functions[name, owner] += blocks[address]
    for address, count in blocks.items():
        if address < KERNEL:
            functions["a program", PROGRAMS] += count
    return functions


def readable(names: Iterable[str]) -> list[str]:
    """Rust's names as in the source."""
    result = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    # Without hashes and generic arguments a name fits into a line.
    return [re.sub(r"\[[0-9a-f]+\]", "", line) for line in result.stdout.splitlines()]
