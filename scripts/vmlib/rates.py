# SPDX-License-Identifier: GPL-2.0
"""Rates and latencies between two machines, measured by third-party programs."""

import re
from typing import Self

from .machine import Vm, VmError

UNITS = {"bytes/sec": 1e-6, "KB/sec": 1e-3, "MB/sec": 1.0, "GB/sec": 1e3,
         "ns": 1e-3, "us": 1.0, "ms": 1e3, "sec": 1e6}
RESULT = re.compile(r"^\s+(?:bw|latency)\s+=\s+([\d.,]+)\s+(\S+)$", re.MULTILINE)

# rc_* uses rdma_cm, as SDP does, with a transition to user space for each event.
OPTIONS = {"rc": "-cm1 "}

# How long qperf waits for a starting server (-ws), and for its answers: the default is 5 seconds, which a
# busy host may exceed.
STARTS = "-ws 30"
PATIENT = f"{STARTS} -to 30"


class QperfServer:
    """qperf's server on one machine for the length of a `with` block."""

    def __init__(self, vm: Vm, environment: str = "") -> None:
        self.vm = vm
        self.command = f"{environment} exec qperf"

    def __enter__(self) -> Self:
        self.job = self.vm.spawn(self.command)
        return self

    def __exit__(self, *_: object) -> None:
        self.job.kill()
        self.job.wait(10)


# qperf's server announces its port before it listens there, and the CM rejects an early client
# (reason 8, no such service), as the tracepoints ib_cma and rdma_cma show. Such a measurement has
# not begun.
TOO_EARLY = "unexpected event from RDMA CM: Event rejected"
ATTEMPTS = 5


def qperf(vm: Vm, peer: str, test: str, size: int, seconds: float = 2, options: str = "", environment: str = "",
          limit: float = 120) -> float:
    """One measurement: MB/s for a *_bw test, microseconds for a *_lat one. `limit` is in seconds, also for the time
    that one side waits for the other: if clocks go by instructions, the clock of an idle machine is faster than that
    of a busy one, and the server of an RDMA Read is idle."""
    family = test.split("_")[0]
    for _ in range(ATTEMPTS):
        result = vm.run(f"{environment} exec qperf {OPTIONS.get(family, '')}{options} {peer} {STARTS} "
                        f"-to {limit:.0f} -t {seconds} -m {size} {test}", limit)
        if family != "rc" or TOO_EARLY not in result.output:
            break
    match = RESULT.search(result.output)
    if not result.ok or not match:
        raise VmError(f"qperf {test} ended with {result.rc}:\n{result.output}")
    return float(match[1].replace(",", "")) * UNITS[match[2]]
