# SPDX-License-Identifier: GPL-2.0
"""`scripts/vmtest`: the module's tests in virtual machines."""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import traceback

import vmtests

from . import debian, klog, ktap
from .bench import Bench, Failure, Skip
from .machine import Vm, VmError
from .plan import PLAIN, GroupItem, Item, KunitItem, Plan, Queue, TestItem, Times
from .report import Report
from .setup import kernels, kill_all, machines, processors_and_memory, queue_for_machines, say

PROGRAMS = "selftest qperf netperf netserver sdpbench sdpctl hostile"
# The minimum of remaining seconds for booting another set of machines for a queue.
WORTH_A_BOOT = {"stock": 25, "debug": 60}
# Sufficient for two machines with their QEMUs.
MIB_PER_LANE = 3500
# The processors of the host that a lane is assumed to use while it boots, or runs an item that was
# never measured.
LOAD = {"stock": 0.5, "debug": 0.8}
# The maximum load of an item: where it used more, others may run beside it all the same.
HEAVIEST = 1.2
# The maximum load for each of the host's processors. With more, tests that depend on the order of
# events begin to see machines that do not progress.
LOAD_PER_PROCESSOR = 1.0
# The times of items in former runs, and of the tests of the suite inside: the longest items go first.
TIMES = os.path.join(os.environ.get("IB_SDP_CACHE", ""), "times.json")
# The factor for the amounts of `make test`. `make test-all` uses all of them.
CORE_SCALE = 0.5
# The time of random calls in a run of everything, in seconds, at vmlib.plan.LONGEST.
RANDOM_SECONDS = 3600
# In a run with a time limit, no item and no lane starts in the last seconds before the limit: the items that run
# then must end, and the debug kernel searches for leaks.
LAST_START = 600
# How many processors of the host each item used in former runs, on average.
LOADS = os.path.join(os.environ.get("IB_SDP_CACHE", ""), "loads.json")


class Suite:
    """A run: lanes, each with its own machines, take the items from the queues. `until` is the time limit, in
    seconds since the epoch."""

    def __init__(self, queues: list[Queue], report: Report, scale: float, loads: Times,
                 until: float | None = None) -> None:
        self.queues = queues
        self.report = report
        self.scale = scale
        self.loads = loads
        self.until = until
        # Guards the queues and the load, and is notified when there is less load.
        self.changed = threading.Condition()
        # What boots or runs now, and the load that may be added to it.
        self.running = 0
        self.load_left: float = 0
        # What is kept free for a lane that waits for room to boot.
        self.kept: float = 0
        self.stopped = threading.Event()

    def run(self, lanes: int, load: float) -> None:
        """Runs at most `lanes` lanes at a time, with at most `load`, until the queues are empty."""
        self.load_left = load
        threads = [threading.Thread(target=self.work, daemon=True) for _ in range(lanes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for queue in self.queues:
            self.skip(queue)

    def skip(self, queue: Queue) -> None:
        """Reports each test that did not run: there was no time."""
        for item in queue.items:
            tests = [f"{item.prefix}.{test}" for test in item.tests] if isinstance(item, GroupItem) else [item.name]
            for test in tests:
                if self.until is not None:
                    self.report.skipped(test, "no time left")
                else:
                    self.report.failed(test, "it did not run")

    def late(self) -> bool:
        """Whether it is too late to start an item or a lane."""
        return self.until is not None and time.time() > self.until - LAST_START

    def work(self) -> None:
        """One worker: runs one lane after the other, until no queue needs one."""
        while (lane := self.begin()) is not None:
            try:
                lane.run()
            except Exception:  # noqa: BLE001 # A mistake in here is a failure, not the end of the run.
                self.report.failed(lane.name, traceback.format_exc())
            finally:
                with self.changed:
                    lane.queue.lanes -= 1
                    lane.queue.idle -= lane.idle
                self.leave(lane)

    def begin(self) -> "Lane | None":
        """Waits until there is room for another lane to boot; None at the end.

        The queue that needs a lane most goes first, and meanwhile no item takes the room that its lane needs:
        otherwise light items of other queues would keep heavy ones waiting until the end of the run. The queues
        of older series come last: they run tests that the newest series also runs, so a time limit skips these.
        """
        with self.changed:
            while not self.stopped.is_set():
                queue = max(self.waiting(), key=lambda queue: (not queue.kernel.series, self.share(queue)),
                            default=None)
                if queue is None:
                    self.kept = 0
                    self.changed.notify_all()
                    return None
                load = LOAD[queue.kernel.kind]
                if self.fits(load):
                    queue.lanes += 1
                    queue.idle += 1
                    queue.booted += 1
                    self.kept = 0
                    lane = Lane(self, queue, queue.booted)
                    self.enter(lane, load)
                    return lane
                self.kept = load
                self.changed.wait()
        return None

    def waiting(self) -> list[Queue]:
        """The queues that need another lane."""
        if self.late():
            return []
        return [queue for queue in self.queues if len(queue.items) > queue.idle and (
            queue.breaking() > queue.lanes or not queue.lanes or
            self.share(queue) > WORTH_A_BOOT[queue.kernel.kind])]

    @staticmethod
    def share(queue: Queue) -> float:
        """How long each lane of a queue would take with one more lane."""
        return queue.seconds() / (queue.lanes + 1)

    def fits(self, load: float) -> bool:
        return not self.running or load <= self.load_left

    def enter(self, lane: "Lane", load: float) -> None:
        """Adds the load of a lane, which had none."""
        with self.changed:
            lane.load = load
            self.load_left -= load
            self.running += 1

    def leave(self, lane: "Lane") -> None:
        """Takes a lane's load off, if it has one."""
        with self.changed:
            if lane.load is not None:
                self.load_left += lane.load
                self.running -= 1
                lane.load = None
            self.changed.notify_all()

    def load_of(self, queue: Queue, item: Item) -> float:
        return min(self.loads.get(item.name, LOAD[queue.kernel.kind]), HEAVIEST)

    def take(self, lane: "Lane", parameters: str) -> Item | None:
        """Waits until there is room for an item of the lane's queue; None at the end."""
        queue = lane.queue
        with self.changed:
            while queue.items and not self.stopped.is_set() and not self.late():
                item = queue.take(parameters, lambda item: self.fits(self.load_of(queue, item) + self.kept))
                if item is not None:
                    self.enter(lane, self.load_of(queue, item))
                    queue.idle -= 1
                    lane.idle = False
                    return item
                self.changed.wait()
        return None

    def done(self, lane: "Lane") -> None:
        """The lane has done an item, and may take the next one."""
        with self.changed:
            lane.queue.idle += 1
            lane.idle = True
        self.leave(lane)

    def take_kunit(self, queue: Queue) -> bool:
        """Whether this lane is the one that reads KUnit's results."""
        with self.changed:
            kunit = [item for item in queue.items if isinstance(item, KunitItem)]
            queue.items = [item for item in queue.items if item not in kunit]
            return bool(kunit)


class Lane:
    """One set of machines, from boot to end."""

    def __init__(self, suite: Suite, queue: Queue, number: int) -> None:
        self.suite = suite
        self.queue = queue
        self.report = suite.report
        self.kind = queue.kernel.kind
        self.name = f"{queue.name}.lane{number}"
        self.loaded: str | None = None
        # Its part of the suite's load; None while it waits for room.
        self.load: float | None = None
        # It boots, or waits for an item.
        self.idle = True

    def run(self) -> None:
        # KUnit's suites run whenever the module is loaded: one lane reads the results.
        kunit = self.suite.take_kunit(self.queue)
        started = time.monotonic()
        try:
            with machines(self.queue.kernel, self.queue.count, f"vmtest-{self.name}",
                          cpus=2 if self.queue.count == 1 else 1,
                          extra_append="" if kunit else "kunit.enable=0") as vms:
                self.report.test_took(f"{self.name}.boot", time.monotonic() - started)
                bench = Bench(self.kind, vms, self.suite.scale)
                if kunit and self.reload(bench, PLAIN):
                    self.kunit(bench)
                self.suite.leave(self)
                while (item := self.suite.take(self, self.loaded or PLAIN)) is not None:
                    if not self.reload(bench, item.parameters):
                        break
                    self.item(bench, item)
                    # The remaining items need intact machines.
                    if item.breaks or any(vm.gone.is_set() for vm in vms):
                        break
                    self.suite.done(self)
                if self.loaded is not None:
                    self.unload(bench)
                self.judge_logs(bench)
        except VmError as error:
            self.report.failed(f"{self.name}.machines", str(error))

    def item(self, bench: Bench, item: Item) -> None:
        seed = item.seed if isinstance(item, GroupItem) else None
        say(f"  .. {item.name} ({self.name})" + (f", seed {seed}" if seed is not None else ""))
        started = time.monotonic()
        used = {vm: vm.processor_seconds() for vm in bench.vms}
        if isinstance(item, GroupItem):
            self.group(bench, item)
        elif isinstance(item, TestItem):
            self.test(bench, item)
        else:
            raise TypeError(f"{item.name} is for take_kunit()")
        # The processor time of a machine that has ended is not known.
        of_processors = sum(vm.processor_seconds() - before for vm, before in used.items() if not vm.gone.is_set())
        self.report.took(item.name, time.monotonic() - started, of_processors)

    def reload(self, bench: Bench, parameters: str) -> bool:
        """Ensures that the module is loaded with these parameters."""
        if self.loaded == parameters:
            return True
        if self.loaded is not None:
            self.unload(bench)
        for vm in bench.vms:
            result = vm.run(f"modprobe ib_sdp {parameters}")
            if not result.ok:
                self.report.failed(f"{self.name}.load.{vm.name}", f"modprobe ib_sdp: exit {result.rc}\n{result.output}")
                return False
        self.loaded = parameters
        return True

    def kunit(self, bench: Bench) -> None:
        """Reads the results of KUnit's suites, which ran when the module was loaded."""
        reader = ktap.Reader("kunit")
        tests: list[ktap.Test] = []
        for line in klog.since_init(bench.a.whole_log()).splitlines():
            tests += reader.feed(line)
        tests += reader.end()
        for test in tests:
            self.report.add(test.name, test.outcome, test.detail)
        if not tests:
            self.report.failed("kunit", "the module has no KUnit suite in its log")

    def group(self, bench: Bench, item: GroupItem) -> None:
        alone = bench.a is bench.b
        names = f"--times --exact {' '.join(item.tests)}"
        if item.seed is not None:
            names = f"--seed {item.seed} {names}"
        if item.seconds is not None:
            names = f"--for {item.seconds} {names}"
        command = bench.selftest(names, None if alone else bench.b, more=item.scale)
        with contextlib.nullcontext() if alone else bench.selftest_server():
            self.follow(bench, item, command)
        for vm in bench.vms:
            bench.settle(vm)

    def follow(self, bench: Bench, item: GroupItem, command: str) -> None:
        """Runs a program that prints KTAP; reports each result as it comes."""
        reader = ktap.Reader(item.prefix)
        last = [time.monotonic()]
        ended = [time.monotonic()]
        count = [0]

        def on_line(line: str) -> None:
            last[0] = time.monotonic()
            for test in reader.feed(line):
                count[0] += 1
                self.report.add(test.name, test.outcome, test.detail)
                self.report.test_took(test.name, last[0] - ended[0])
                ended[0] = last[0]
        job = bench.a.spawn(command, on_line)
        shown = None
        while job.wait(1) is None and not bench.a.gone.is_set():
            silence = time.monotonic() - last[0]
            if silence > bench.limit(30) and shown != count[0]:
                shown = count[0]
                for vm in bench.vms:
                    bench.show(vm, f"no result for {silence:.0f} s")
            # Each test has its own limit, and long tests report their progress: a longer silence means that the
            # machine hangs.
            if silence > bench.limit(150):
                job.kill()
                self.report.failed(f"{item.name}(hang)", f"no line for {bench.limit(150)} s\n" +
                                   "\n".join(job.lines[-20:]))
                break
        for test in reader.end():
            self.report.add(test.name, test.outcome, test.detail)
        if not count[0]:
            self.report.failed(item.name, f"no result (exit {job.status}):\n{job.output}")

    def test(self, bench: Bench, item: TestItem) -> None:
        started = time.monotonic()
        try:
            item.function(bench)
            self.report.passed(item.name)
        except Skip as skip:
            self.report.skipped(item.name, str(skip))
        except (Failure, VmError) as failure:
            self.report.failed(item.name, str(failure))
        except Exception:  # noqa: BLE001 # A mistake in a test is a failure, not the end of the run.
            self.report.failed(item.name, traceback.format_exc())
        alive = [vm for vm in bench.vms if not vm.gone.is_set()]
        for vm in alive:
            # Processes of a failed test must not affect the next one.
            vm.run(f"killall -q -KILL {PROGRAMS}")
            if vm.has_disk:
                debian.kill_all(vm)
        for vm in alive:
            bench.settle(vm)
        self.report.test_took(item.name, time.monotonic() - started)

    def unload(self, bench: Bench) -> None:
        """All sockets are closed: the module must be unloadable, and leave nothing behind."""
        self.loaded = None
        for vm in bench.vms:
            if vm.gone.is_set():
                continue
            try:
                vm.run(f"killall -q -KILL {PROGRAMS}")
                illegal = bench.stats(vm).get("illegal_transition", 0)
                if illegal:
                    self.report.failed(f"{self.name}.states.{vm.name}", f"{illegal} illegal state transitions")
                bench.unload(vm)
            except (Failure, VmError) as failure:
                self.report.failed(f"{self.name}.unload.{vm.name}", str(failure))
                continue
            self.report.passed(f"{self.name}.unload.{vm.name}")

    def judge_logs(self, bench: Bench) -> None:
        for vm in bench.vms:
            leaks_are_known = self.kind == "debug" and not vm.gone.is_set() and self.kmemleak(vm)
            log = vm.log() if vm.gone.is_set() else vm.whole_log()
            if races := klog.races_of_soft_roce(log):
                print(f"# {self.name}.log.{vm.name}: {races} warnings of soft-RoCE's race (see testing.rst)",
                      flush=True)
            found = klog.complaints(log, leaks_are_known)
            for excerpt in found:
                self.report.failed(f"{self.name}.log.{vm.name}", excerpt)
            if not found:
                self.report.passed(f"{self.name}.log.{vm.name}")

    def kmemleak(self, vm: Vm) -> bool:
        """Scans twice with a pause, because an object just freed by RCU is no leak. Returns whether there is no
        leak of the module."""
        name = f"{self.name}.kmemleak.{vm.name}"
        result = vm.run("cd /sys/kernel/debug && echo scan >kmemleak && sleep 6 && echo scan >kmemleak && cat kmemleak")
        if not result.ok:
            self.report.failed(name, f"the scan failed:\n{result.output}")
            return False
        judged, known = klog.leaks(result.output)
        if known:
            print(f"# {name}: {known} requests that the iWARP CM has lost (see testing.rst)", flush=True)
        if judged:
            self.report.failed(name, "\n".join("".join(judged).splitlines()[:80]))
        else:
            self.report.passed(name)
        return not judged


def groups_inside() -> dict[str, list[str]]:
    """The tests of tools/selftest by group, in their order: the program also runs on this machine."""
    program = os.path.join(os.environ["IB_SDP_CACHE"], "target/release/selftest")
    names = subprocess.run([program, "run", "--family", "tcp", "--local", "127.0.0.1", "--list"],
                           check=True, capture_output=True, text=True).stdout.split()
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.partition("/")[0], []).append(name)
    return groups


def former(path: str) -> Times:
    """A number for each item, from former runs; empty before the first run."""
    try:
        with open(path, encoding="utf-8") as file:
            numbers: Times = json.load(file)
    except (OSError, ValueError):
        return {}
    return numbers


def remember(path: str, numbers: Times) -> None:
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(numbers, file, indent=0, sort_keys=True)
    os.replace(f"{path}.new", path)


def measured_loads(report: Report, loads: Times) -> dict[str, float]:
    """The load of each item of a run. On a busy host an item takes longer, and its load seems less: so a
    load falls slowly from one run to the next."""
    found = {}
    for name, seconds in report.item_times.items():
        load = report.item_processors[name] / max(seconds, 0.1)
        # That of an item whose machines have ended is not known.
        if load:
            found[name] = round(max(load, 0.9 * loads.get(name, 0)), 2)
    return found


def room() -> tuple[int, float]:
    """The number of lanes that may run at a time, and their load."""
    if told := os.environ.get("IB_SDP_LANES"):
        return max(1, int(told)), float("inf")
    processors, mib = processors_and_memory()
    load = processors * LOAD_PER_PROCESSOR
    return max(1, mib // MIB_PER_LANE), load


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/vmtest")
    parser.add_argument("what", choices=["stock", "debug", "core", "all"])
    parser.add_argument("--one", action="store_true", help="only the tests of a single machine")
    parser.add_argument("--two", action="store_true", help="only the tests of two machines")
    parser.add_argument("--scale", type=float,
                        help=f"factor for the amounts that tests use (1; core: {CORE_SCALE})")
    parser.add_argument("--seed", type=int,
                        help="seed of random calls (1; the date and the time in a run of everything, or with --for)")
    parser.add_argument("--for", type=int, metavar="SECONDS", dest="seconds",
                        help=f"time of random calls ({RANDOM_SECONDS} on one machine in a run of everything; otherwise "
                        "a few seconds)")
    parser.add_argument("--until", type=int, metavar="SECONDS",
                        help="time limit in seconds since the epoch: skip the tests for which no time is left")
    parser.add_argument("--list", action="store_true", help="name what would run, and on which machines")
    parser.add_argument("patterns", nargs="*", help="only tests whose names contain one of these")
    args = parser.parse_intermixed_args()
    counts = [count for count, only in ((2, args.two), (1, args.one)) if only or not (args.one or args.two)]
    vmtests.load()
    times, loads = former(TIMES), former(LOADS)
    core, seed, seconds = args.what == "core", args.seed, args.seconds
    if not core and not args.patterns:
        seconds = seconds or RANDOM_SECONDS
    if seconds and seed is None:
        # Another run makes other calls.
        seed = int(time.strftime("%y%m%d%H%M%S"))
    plan = Plan(core, args.patterns, counts, groups_inside(), times, seed, seconds)
    queues = plan.queues(kernels())
    if args.list:
        for queue in queues:
            print("\n".join(item.name for item in queue.items))
        return 0
    report = Report()
    print("TAP version 13")
    scale = args.scale or (CORE_SCALE if args.what == "core" else 1)
    suite = Suite(queues, report, scale, loads, args.until)
    try:
        with queue_for_machines():
            suite.run(*room())
    except (KeyboardInterrupt, SystemExit):
        say("  stopped")
        report.failed("interrupted", "stopped before the end")
        report.close()
        suite.stopped.set()
        kill_all()
    if not queues:
        report.failed("patterns", "no test has such a name")
    remember(TIMES, {**times, **report.test_times, **report.item_times})
    remember(LOADS, {**loads, **measured_loads(report, loads)})
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
