# SPDX-License-Identifier: GPL-2.0
"""`scripts/vm`: commands in fresh machines, and a shell in them."""

import argparse
import sys
from collections.abc import Callable

from . import debian
from .machine import Vm, VmError
from .setup import kernels, machines, say


def load_module(vm: Vm) -> None:
    """Loads ib_sdp if this build has the module; the machine can be used without it."""
    result = vm.run("modinfo ib_sdp >/dev/null 2>&1 || exit 3; modprobe ib_sdp")
    if result.rc == 3:
        say(f"  {vm.name}: there is no ib_sdp module in this build")
    elif not result.ok:
        say(f"  {vm.name}: modprobe ib_sdp failed: {result.output}")


def printed(vm: Vm) -> Callable[[str], None]:
    """A function that prints a line of a machine."""
    return lambda line: print(f"{vm.name}: {line}", flush=True)


def run(args: argparse.Namespace) -> int:
    failed = False
    with machines(args.boots, 2 if args.two else 1, "run", args.cpus) as vms:
        for vm in vms:
            if not args.no_load:
                load_module(vm)
            if args.programs:
                debian.mount(vm)
        jobs = []
        # The second command may be missing.
        for vm, command in zip(vms, args.command, strict=False):
            jobs.append(vm.spawn(command, printed(vm)))
        for job in jobs:
            status = job.wait(args.limit)
            text = "gone" if job.vm.gone.is_set() else "out of time" if status is None else f"exit {status}"
            say(f"{job.vm.name}: {text}")
            failed |= status != 0
        for vm in vms:
            boot, mark, rest = vm.log().partition("Run /init as init process")
            say(f"--- kernel log of {vm.name}")
            say((rest if mark else boot).strip())
    return 1 if failed else 0


def shell(args: argparse.Namespace) -> int:
    """Reads lines `[1|2] COMMAND`; each runs in a shell of its own."""
    with machines(args.boots, 2 if args.two else 1, "shell", args.cpus) as vms:
        for vm in vms:
            if not args.no_load:
                load_module(vm)
            if args.programs:
                debian.mount(vm)
        say("A line is a command for vm1, or for vm2 when it starts with `2 `; `log` and `log 2` show\n"
            "the kernel's log; a command that ends in & goes on in the background; Ctrl-D ends it all.")
        while True:
            print("vm> ", end="", flush=True)
            line = sys.stdin.readline()
            if not line:
                return 0
            line = line.strip()
            vm = vms[0]
            if line.startswith(("1 ", "2 ")):
                vm = vms[min(int(line[0]), len(vms)) - 1]
                line = line[2:]
            if line in ("log", "log 1", "log 2"):
                vm = vms[-1] if line.endswith("2") else vms[0]
                print(vm.log())
            elif line:
                job = vm.spawn(line.rstrip("&"), printed(vm))
                if not line.endswith("&"):
                    try:
                        status = job.wait()
                        if status:
                            print(f"(exit {status})")
                    except KeyboardInterrupt:
                        job.kill()


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/vm")
    parser.add_argument("action", choices=["run", "shell"])
    parser.add_argument("--two", action="store_true", help="two machines, linked")
    other = parser.add_mutually_exclusive_group()
    other.add_argument("--siw", action="store_true", help="soft-iWARP instead of soft-RoCE")
    other.add_argument("--pvrdma", action="store_true", help="the test adapter on a second network card")
    parser.add_argument("--programs", action="store_true", help="a Debian root with servers at /debian")
    parser.add_argument("--cpus", type=int, default=1, help="processors of each machine")
    parser.add_argument("--limit", type=float, default=600, help="seconds for the commands of `run`")
    parser.add_argument("--no-load", action="store_true", help="do not load ib_sdp")
    # Words: the kernel and, for `run`, a command for each machine.
    parser.add_argument("words", nargs="*", metavar="[stock|debug] [COMMAND [COMMAND]]")
    args = parser.parse_intermixed_args()
    args.kernel = args.words.pop(0) if args.words[:1] in (["stock"], ["debug"]) else "stock"
    args.command = args.words
    kernel = kernels()[0]
    if args.siw:
        kernel = kernel.with_siw()
    elif args.pvrdma:
        kernel = kernel.with_pvrdma()
    args.boots = kernel
    try:
        return {"run": run, "shell": shell}[args.action](args)
    except VmError as error:
        say(f"scripts/vm: {error}")
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
