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

# rdtsc; shl $32,%rdx; or %rdx,%rax; ret
READ = bytes.fromhex("0f31 48c1e220 4809d0 c3")
# The error is the time between reading both clocks, less than a thousandth of this.
SECONDS = 0.05


@functools.cache
def tsc_khz() -> int:
    """The frequency in kHz, of a host with an x86-64 processor."""
    with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as code:
        code.write(READ)
        function = ctypes.c_char.from_buffer(code)
        read = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(function))
        began, first = time.monotonic_ns(), read()
        time.sleep(SECONDS)
        ended, last = time.monotonic_ns(), read()
        ticks: int = last - first
        # The mapping cannot be closed as long as it is used.
        del function, read
    return round(ticks * 1e6 / (ended - began))
