# SPDX-License-Identifier: GPL-2.0
"""One or two machines for the length of a `with` block, one run at a time."""

import contextlib
import fcntl
import os
import shutil
import signal
import sys
import tempfile
import time

from .machine import Vm


def _stop(signum, _frame):
    # As SystemExit it unwinds the `with` blocks, which end the machines.
    sys.exit(128 + signum)


def say(text):
    """Progress for a person: to stderr, because stdout carries results."""
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def queue_for_machines():
    """Two machines fill a small host: runs wait for each other."""
    with open(os.path.join(os.environ["IB_SDP_CACHE"], "vm.lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("  .. waiting for another run's machines to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def machines(kind, count, run_name, cpus=1, memory_mib=None, by_instructions=False):
    """Boots `count` machines and yields them as a list.

    The console logs stay in the cache under run/<run_name>; the environment
    names the images (see in_machines of scripts/env.sh). With `by_instructions` the
    machines' clocks advance by a nanosecond for each instruction.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    image, initrd = os.environ["IB_SDP_IMAGE"], os.environ["IB_SDP_INITRD"]
    memory_mib = memory_mib or (1536 if kind == "debug" else 1024)
    logs = os.path.join(os.environ["IB_SDP_CACHE"], "run", run_name)
    with queue_for_machines(), tempfile.TemporaryDirectory(prefix="vm") as folder:
        started = time.monotonic()
        vms = [Vm(kind, image, initrd, folder, ident, cpus, memory_mib, by_instructions=by_instructions)
               for ident in range(1, count + 1)]
        try:
            for vm in vms:
                vm.start()
            for vm in vms:
                vm.wait_ready()
            say(f"  ok {count} {kind} machine{'s' if count > 1 else ''} up in "
                f"{time.monotonic() - started:.0f} s")
            yield vms
        finally:
            for vm in vms:
                vm.kill()
            shutil.rmtree(logs, ignore_errors=True)
            os.makedirs(logs)
            for vm in vms:
                for path in (vm.console, vm.console.replace(".log", ".qemu")):
                    if os.path.exists(path):
                        shutil.copy(path, logs)
            say(f"  console logs: {logs}")
