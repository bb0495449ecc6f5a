# SPDX-License-Identifier: GPL-2.0
"""One or two machines for the duration of a `with` block, one run at a time."""

import contextlib
import fcntl
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from types import FrameType

from .machine import Vm, VmError

ADAPTER = os.path.join(os.environ.get("IB_SDP_CACHE", ""), "target/release/adapter")


class Kernel:
    """A kernel for machines: `kind` is stock or debug, `name` identifies it in results.

    `adapter` is the RDMA device whose addresses are used: rxe (soft-RoCE), siw (soft-iWARP, instead
    of soft-RoCE), or pvrdma (tools/adapter, in addition to soft-RoCE).
    """

    def __init__(self, name: str, image: str, initrd: str, adapter: str = "rxe") -> None:
        self.name = name
        self.kind = name.partition("-")[0]
        # The series, if it is not the chosen one: stock-7.2.
        self.series = next((word for word in name.split("-")[1:] if word[0].isdigit()), None)
        self.image = image
        self.initrd = initrd
        self.adapter = adapter

    def with_siw(self) -> "Kernel":
        """The same kernel with soft-iWARP."""
        return Kernel(f"{self.name}-siw", self.image, self.initrd, "siw")

    def with_pvrdma(self) -> "Kernel":
        """The same kernel in machines that have the adapter, too."""
        return Kernel(f"{self.name}-pvrdma", self.image, self.initrd, "pvrdma")


def kernels() -> list[Kernel]:
    """The kernels whose images the environment names (see machine_images of scripts/env.sh)."""
    return [Kernel(*line.split()) for line in os.environ["IB_SDP_IMAGES"].splitlines()]


def _stop(signum: int, _frame: FrameType | None) -> None:
    # SystemExit unwinds the `with` blocks, which end the machines.
    sys.exit(128 + signum)


def say(text: str) -> None:
    """Prints progress to stderr, because stdout carries results."""
    print(text, file=sys.stderr, flush=True)


# The running machines, so that a stopped run can end them at once.
RUNNING: set[Vm] = set()
_queued = threading.Event()


def kill_all() -> None:
    """Ends all machines of this run, even if threads wait for them."""
    for vm in list(RUNNING):
        vm.kill()


def processors_and_memory() -> tuple[int, int]:
    """The number of processors that this process may use, and the available memory in MiB."""
    with open("/proc/meminfo", encoding="ascii") as file:
        kib = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))
    return len(os.sched_getaffinity(0)), kib // 1024


@contextlib.contextmanager
def queue_for_machines() -> Iterator[None]:
    """Machines fill a small host, so runs wait for each other. A caller may hold this over several runs."""
    if _queued.is_set():
        yield
        return
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _stop)
    with open(os.path.join(os.environ["IB_SDP_CACHE"], "vm.lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("  .. waiting for another run's machines to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        _queued.set()
        try:
            yield
        finally:
            _queued.clear()


@contextlib.contextmanager
def adapter_process(vms: list[Vm], folder: str) -> Iterator[None]:
    """The process of the machines' adapters, for machines that have one; its log is in the folder."""
    sockets = [vm.adapter_socket() for vm in vms if vm.adapter == "pvrdma"]
    if not sockets:
        yield
        return
    options = os.environ.get("IB_SDP_ADAPTER", "").split()
    for here, there in (vm.second_network() for vm in vms if vm.switched):
        options += ["--network", f"{there}={here}"]
    with open(os.path.join(folder, "adapter.log"), "wb") as log:
        process = subprocess.Popen([ADAPTER, *options, "--control", os.path.join(folder, "control"), *sockets],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
    try:
        # The process prints a line when the machines can connect.
        assert process.stdout is not None  # It is a pipe.
        if process.stdout.readline() != b"ready\n":
            process.wait()
            with open(os.path.join(folder, "adapter.log"), encoding="utf-8", errors="replace") as said:
                raise VmError(f"the adapter did not start: {said.read().strip()}")
        for vm in vms:
            vm.served_at_once(process)
        yield
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def machines(kernel: Kernel, count: int, run_name: str, cpus: int = 1, memory_mib: int | None = None,
             by_instructions: bool = False, extra_append: str = "", apart: bool = False) -> Iterator[list[Vm]]:
    """Boots `count` machines with that kernel and yields them as a list.

    The console logs stay in the cache under run/<run_name>. With `by_instructions` the
    machines' clocks advance by a nanosecond for each instruction. `apart`: each machine, which has one processor,
    runs on a processor of the host, the next machine on the next one.
    """
    memory_mib = memory_mib or (1536 if kernel.kind == "debug" else 1024)
    logs = os.path.join(os.environ["IB_SDP_CACHE"], "run", run_name)
    places: list[int | None] = [*sorted(os.sched_getaffinity(0))] if apart else [None]
    processors = itertools.cycle(places)
    with (queue_for_machines(), tempfile.TemporaryDirectory(prefix="vm") as folder,
          contextlib.ExitStack() as stack):
        started = time.monotonic()
        vms = [Vm(kernel.kind, kernel.image, kernel.initrd, folder, ident, cpus, memory_mib,
                  by_instructions=by_instructions, extra_append=extra_append, adapter=kernel.adapter,
                  switched=kernel.adapter == "pvrdma" and count > 2,
                  disk=os.environ.get("IB_SDP_PROGRAMS") or None, processor=next(processors))
               for ident in range(1, count + 1)]
        stack.enter_context(adapter_process(vms, folder))
        RUNNING.update(vms)
        try:
            for vm in vms:
                vm.start()
            for vm in vms:
                vm.wait_ready()
            say(f"  ok {run_name}: {count} {kernel.name} machine{'s' if count > 1 else ''} up in "
                f"{time.monotonic() - started:.0f} s")
            yield vms
        finally:
            used = sum(vm.processor_seconds() for vm in vms)
            for vm in vms:
                vm.kill()
            RUNNING.difference_update(vms)
            shutil.rmtree(logs, ignore_errors=True)
            os.makedirs(logs)
            for vm in vms:
                for path in (vm.console, vm.console.replace(".log", ".qemu")):
                    if os.path.exists(path):
                        shutil.copy(path, logs)
            if os.path.exists(os.path.join(folder, "adapter.log")):
                shutil.copy(os.path.join(folder, "adapter.log"), logs)
            say(f"  ended {run_name}: {time.monotonic() - started:.0f} s, {used:.0f} s of the host's processors; "
                f"console logs: {logs}")
