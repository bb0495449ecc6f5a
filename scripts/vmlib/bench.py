# SPDX-License-Identifier: GPL-2.0
"""The interface of the tests in scripts/vmtests."""

import contextlib
import time
from collections.abc import Callable, Collection, Iterator
from typing import TypeAlias, TypeVar

from .adapter import Adapter
from .machine import Job, Vm
from .setup import say

T = TypeVar("T")

# With this parameter of the module, sends use adverts wherever possible. The stock kernel runs the
# selftests in both ways on one machine; the debug kernel, which is slow, by adverts on one machine
# and as users have it on two.
BY_ADVERTS = "sdp_zcopy_thresh=16384"


class Failure(Exception):
    """The test failed; the text says what was expected and what happened."""


class Skip(Exception):
    """The test cannot run here; the text gives the reason."""


# The function of a test.
Function: TypeAlias = Callable[["Bench"], None]


class Test:
    """A registered test: its function and what it needs."""

    def __init__(self, function: Function, machines: int, breaks: bool, kinds: Collection[str],
                 core: Collection[str] | None, adapter: str) -> None:
        self.function = function
        self.machines = machines
        self.breaks = breaks
        self.kinds = kinds
        self.core = kinds if core is None else core
        self.adapter = adapter
        self.name = f"{function.__module__.split('.')[-1]}.{function.__name__}"


REGISTERED: list[Test] = []


def test(machines: int = 2, breaks: bool = False, kinds: Collection[str] = ("stock", "debug"),
         core: Collection[str] | None = None, adapter: str = "rxe") -> Callable[[Function], Function]:
    """Registers a test for that many machines.

    `breaks`: the machines cannot be used after it, so the next test gets fresh ones.
    `kinds`: the kernels on which it runs; `core`: those of `make test`, if one kernel finds
    the same errors as the other. `adapter`: the RDMA device whose addresses it uses.
    """
    def register(function: Function) -> Function:
        REGISTERED.append(Test(function, machines, breaks, kinds, core, adapter))
        return function
    return register


def expect(condition: object, text: object) -> None:
    """Fails the test with the text unless the condition holds."""
    if not condition:
        raise Failure(text)


def present(value: T | None, text: object) -> T:
    """The value, such as the match of a pattern; fails the test with the text if there is none."""
    if value is None:
        raise Failure(text)
    return value


def wait_for(condition: Callable[[], object], seconds: float, text: object) -> None:
    """Waits until the condition holds; the limit only detects hangs. `text` is the message of the failure: for a job,
    its output until then."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Failure(f"{text} (waited {seconds} s)")
        time.sleep(0.2)


class Bench:
    """The machines of a run: the test acts on `a`, and `b` is its peer."""

    def __init__(self, kind: str, vms: list[Vm], scale: float = 1) -> None:
        self.kind = kind
        self.scale = scale
        self.vms = vms
        self.a = vms[0]
        self.b = vms[-1]
        self.adapter = Adapter(vms[0].folder)
        # The checkers slow everything down; amounts shrink, limits grow.
        self.slow = 8 if kind == "debug" else 1
        # Limits assume a machine with a processor of its own, but lanes share the host's
        # processors.
        self.patience = 12 if kind == "debug" else 4

    def limit(self, seconds: float) -> float:
        """A limit against hangs on this kernel."""
        return seconds * self.patience

    def amount(self, count: int) -> int:
        """An amount of data or rounds suitable for this kernel."""
        return max(1, int(count * self.scale) // self.slow)

    @staticmethod
    def address(vm: Vm) -> str:
        return vm.address

    @staticmethod
    def stats(vm: Vm) -> dict[str, int]:
        """The module's counters, as a dictionary."""
        return {name: int(value) for name, value in
                (line.split() for line in vm.check("cat /proc/net/sdpstats").splitlines())}

    def stream(self, vm: Vm, role: str, port: int, count: int = 1, size: int = 1 << 20, seed: int = 1,
               one_way: bool = False) -> Job:
        """Starts `selftest stream` on a machine, in the role "listen" or "connect". With `one_way`, only the
        connecting machine sends."""
        address = self.address(vm if role == "listen" else self.other(vm))
        ways = " --one-way" if one_way else ""
        return vm.spawn(f"exec selftest stream --family sdp --{role} {address}:{port} "
                        f"--conns {count} --bytes {size} --seed {seed}{ways}")

    def selftest(self, names: str, peer: Vm | None = None, whole: bool = False, more: float = 1) -> str:
        """The command that runs tests of `selftest` on the first machine: with all amounts multiplied by
        `scale` and by `more`, and reduced on a slow kernel; with `whole`, neither makes them smaller."""
        command = f"exec selftest run --family sdp {self._addresses(self.a, 'local')}"
        if peer:
            command += f" {self._addresses(peer, 'peer')}"
        asked = self.scale * more
        scale = max(1, asked) if whole else asked if self.kind == "stock" else asked / 10
        return f"{command} --timeout-scale {self.limit(max(1, asked))} --scale {scale} {names}"

    def _addresses(self, vm: Vm, option: str) -> str:
        return f"--{option} {self.address(vm)} --{option}6 {vm.address6}"

    @contextlib.contextmanager
    def selftest_server(self) -> Iterator[None]:
        """Serves the tests that need a peer, on the second machine."""
        server = self.b.spawn("exec selftest serve")
        try:
            # The server prints a line when it is ready.
            wait_for(lambda: server.lines, self.limit(20), "selftest serve says nothing")
            yield
        finally:
            server.kill()

    def selftest_passes(self, command: str, seconds: float) -> Job:
        """Runs the command on the first machine. Returns it when it has ended."""
        job = self.a.spawn(command)
        status = self.finish(job, seconds)
        failed = "\n".join(line for line in job.lines if line.startswith("not ok"))
        expect(status == 0, f"selftest ended with {status}:\n{failed}")
        return job

    def expect_adverts(self) -> None:
        """Checks that programs that select no mode send by adverts, as BY_ADVERTS requires."""
        before = self.stats(self.a)["advert_async"]
        self.selftest_passes(self.selftest("data/"), 100)
        count = self.stats(self.a)["advert_async"] - before
        expect(count > 0, "no send has returned before its bytes were read")

    def other(self, vm: Vm) -> Vm:
        return self.b if vm is self.a else self.a

    def finish(self, job: Job, seconds: float) -> int:
        """Waits for a job, which must not hang; returns its exit status."""
        status = job.wait(self.limit(seconds))
        if status is None:
            waits = job.vm.run('for p in $(pidof selftest qperf netperf); do echo "$p $(cat /proc/$p/wchan)"; '
                               "cat /proc/$p/stack; done; head -n 20 /proc/net/sdp", 30).output
            job.kill()
            raise Failure(f"{job.vm.name}: `{job.command}` did not end in {self.limit(seconds)} s\n"
                          f"{job.output}\n{waits}")
        return status

    def succeed(self, job: Job, seconds: float) -> str:
        """Waits for a job that must succeed; returns its output."""
        status = self.finish(job, seconds)
        expect(status == 0, f"{job.vm.name}: `{job.command}` ended with {status}:\n{job.output}")
        return job.output

    @staticmethod
    def show(vm: Vm, why: str) -> None:
        """Prints the module's counters and sockets, and the threads that wait in it."""
        say(f"# {vm.name}: {why}\n" + vm.run(
            "head -n 20 /proc/net/sdp; grep -v ' 0$' /proc/net/sdpstats; "
            "for p in /proc/[0-9]*/task/*; do grep -qE 'ib_sdp|rdma_cm|ib_cm|rdma_rxe' $p/stack && "
            '{ echo "$p $(cat $p/comm)"; cat $p/stack; }; done 2>/dev/null').output)

    def settle(self, vm: Vm, seconds: float = 20) -> None:
        """Waits until the connections of a test have ended, because the next test would see their sockets and
        counts. The end of the run reports remaining connections, when the module must be unloaded."""
        vm.run(f"i=0; while [ $i -lt {5 * seconds} ] && tail -n +2 /proc/net/sdp 2>/dev/null | grep -q .; do "
               "sleep 0.2; i=$((i + 1)); done", self.limit(2 * seconds))

    def unload(self, vm: Vm, seconds: float = 60) -> None:
        """Unloads the module once its last connections have ended."""
        last: list[str] = []
        began = time.monotonic()
        told: list[bool] = []

        def done() -> bool:
            result = vm.run("rmmod ib_sdp")
            last[:] = [result.output]
            if not result.ok and not told and time.monotonic() - began > self.limit(30):
                told.append(True)
                self.show(vm, "rmmod ib_sdp is refused for long")
            return result.ok or "not currently loaded" in result.output
        try:
            wait_for(done, self.limit(seconds), f"{vm.name}: rmmod ib_sdp is still refused")
        except Failure as failure:
            sockets = vm.run("head -n 20 /proc/net/sdp").output
            raise Failure(f"{failure}; sockets:\n{sockets}\nlast answer: {''.join(last)}") from None

    def load(self, vm: Vm) -> None:
        vm.check("modprobe ib_sdp")
