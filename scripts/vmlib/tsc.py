# SPDX-License-Identifier: GPL-2.0
"""The frequency of the time stamp counter (TSC), which an emulated machine shares with its host.

A kernel measures the frequency when it boots, by the interval timer (PIT). On a busy host the emulated timer is
late, and the kernel believes what it measured: clocks that ran seven times too fast were seen, in which all
time-outs of tests were seven times too short. So the host measures the frequency, and tells the kernel.
"""

import ctypes
import functools
import mmap
import time
from collections.abc import Callable

# rdtsc; shl $32,%rdx; or %rdx,%rax; ret
READ = bytes.fromhex("0f31 48c1e220 4809d0 c3")
# The error is the time between reading both clocks, in the best of the attempts less than a thousandth of this.
SECONDS = 0.05
ATTEMPTS = 20


@functools.cache
def tsc_khz() -> int:
    """The frequency in kHz, of a host with an x86-64 processor."""
    with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as code:
        code.write(READ)
        function = ctypes.c_char.from_buffer(code)
        read = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(function))
        first, began = _both_clocks(read)
        time.sleep(SECONDS)
        last, ended = _both_clocks(read)
        # The mapping cannot be closed as long as it is used.
        del function, read
    return round((last - first) * 1e6 / (ended - began))


def _both_clocks(read: Callable[[], int]) -> tuple[int, float]:
    """The counter, and the monotonic time in nanoseconds at which it was read.

    A busy host may suspend this process between the two clocks, so the shortest of several attempts counts.
    """
    attempts = []
    for _ in range(ATTEMPTS):
        before = time.monotonic_ns()
        ticks = read()
        after = time.monotonic_ns()
        attempts.append((after - before, ticks, (before + after) / 2))
    _, ticks, when = min(attempts)
    return ticks, when
