# SPDX-License-Identifier: GPL-2.0
"""`scripts/vmtest`: the module's tests in virtual machines."""

import argparse
import contextlib
import sys
import time
import traceback

from . import klog, ktap
from .bench import BY_ADVERTS, REGISTERED, Bench, Failure, Skip
from .machine import VmError
from .report import Report
from .setup import machines, say
import vmtests

PROGRAMS = "selftest qperf netperf netserver sdpbench sdpctl hostile"
WORDS = {1: "one", 2: "two"}
# A test that took so many seconds is worth knowing.
LONG = 5


class Suite:
    """A run on one kernel."""

    def __init__(self, kind, patterns, report, scale):
        self.kind = kind
        self.scale = scale
        self.patterns = patterns
        self.report = report
        self.kunit_done = False
        self.ran = 0

    def wants(self, name):
        return not self.patterns or any(p in name for p in self.patterns)

    def run(self, count):
        """The tests for `count` machines, in as many boots as they need."""
        prefix = f"{self.kind}.{WORDS[count]}"
        chosen = [t for t in REGISTERED if t.machines == count and self.kind in t.kinds
                  and self.wants(f"{prefix}.{t.name}")]
        sharing = [t for t in chosen if not t.breaks]
        # The first boot has the suite inside; each breaking test ends a boot.
        boots = [sharing] + [[t] for t in chosen if t.breaks]
        for number, tests in enumerate(boots):
            first = number == 0
            if tests or first and (self.patterns_for_selftest(prefix) is not None or self.wants_kunit()):
                self.boot(prefix, count, number + 1, tests, with_suite=first)

    def wants_kunit(self):
        return self.kind == "debug" and not self.kunit_done and (
            not self.patterns or any(p.startswith("kunit") for p in self.patterns))

    def patterns_for_selftest(self, prefix):
        """The patterns to hand on; None if the suite inside is not wanted."""
        mine = f"{prefix}.selftest."
        if not self.patterns or any(p in mine for p in self.patterns):
            return []
        inner = [p.removeprefix(mine).removeprefix("selftest.") for p in self.patterns
                 if not p.startswith("kunit") and not any(p in f"{prefix}.{t.name}" for t in REGISTERED)]
        return inner or None

    def boot(self, prefix, count, number, tests, with_suite):
        name = f"{prefix}.boot{number}"
        by_adverts = with_suite and self.kind == "debug" and count == 1 and \
            self.patterns_for_selftest(prefix) is not None
        say(f"  .. {name}: {' '.join(t.name for t in tests) or 'the suites inside'}")
        try:
            with machines(self.kind, count, f"vmtest-{name}", cpus=2 if count == 1 else 1) as vms:
                bench = Bench(self.kind, vms, self.scale)
                if self.load(name, bench, BY_ADVERTS if by_adverts else ""):
                    if with_suite:
                        self.kunit(bench)
                        self.selftest(prefix, bench)
                    if by_adverts:
                        self.one(f"{prefix}.adverts_are_used", Bench.expect_adverts, bench)
                        self.unload(f"{name}.suite", bench)
                        tests = tests if self.load(name, bench) else []
                    for test in tests:
                        self.one(f"{prefix}.{test.name}", test.function, bench)
                    self.unload(name, bench)
                self.judge_logs(name, bench)
        except VmError as error:
            self.report.failed(f"{name}.machines", str(error))

    def load(self, name, bench, parameters=""):
        for vm in bench.vms:
            result = vm.run(f"modprobe ib_sdp {parameters}")
            if not result.ok:
                self.report.failed(f"{name}.load.{vm.name}", f"modprobe ib_sdp: exit {result.rc}\n{result.output}")
                return False
        return True

    def kunit(self, bench):
        """KUnit's suites ran when the module was loaded: reads their results."""
        if not self.wants_kunit():
            return
        self.kunit_done = True
        reader = ktap.Reader("kunit")
        tests = []
        for line in klog.since_init(bench.a.whole_log()).splitlines():
            tests += reader.feed(line)
        tests += reader.end()
        for test in tests:
            if self.wants(test.name) or test.outcome == "failed":
                self.ran += 1
                self.report.add(test.name, test.outcome, test.detail)
        if not tests:
            self.report.failed("kunit", "the module has no KUnit suite in its log")

    def selftest(self, prefix, bench):
        patterns = self.patterns_for_selftest(prefix)
        if patterns is None:
            return
        alone = bench.a is bench.b
        command = bench.selftest(f"--times {' '.join(patterns)}", None if alone else bench.b)
        with contextlib.nullcontext() if alone else bench.selftest_server():
            self.follow(f"{prefix}.selftest", bench, command, bool(patterns))
        for vm in bench.vms:
            bench.settle(vm)

    def follow(self, prefix, bench, command, some_only):
        """Runs a program that prints KTAP; each result is reported as it comes."""
        reader = ktap.Reader(prefix)
        last = [time.monotonic()]
        ended = [time.monotonic()]
        count = [0]

        def on_line(line):
            last[0] = time.monotonic()
            for test in reader.feed(line):
                count[0] += 1
                self.ran += 1
                self.report.add(test.name, test.outcome, test.detail)
                if last[0] - ended[0] >= LONG:
                    print(f"# {test.name}: {last[0] - ended[0]:.1f} s", flush=True)
                ended[0] = last[0]
        job = bench.a.spawn(command, on_line)
        shown = None
        while job.wait(1) is None and not bench.a.gone.is_set():
            silence = time.monotonic() - last[0]
            if silence > bench.limit(30) and shown != count[0]:
                shown = count[0]
                for vm in bench.vms:
                    bench.show(vm, f"no result for {silence:.0f} s")
            # Each test has a limit of its own; a silence beyond it is a hang of the machine.
            if silence > bench.limit(150):
                job.kill()
                self.report.failed(f"{prefix}.(hang)", f"no line for {bench.limit(150)} s\n" +
                                   "\n".join(job.lines[-20:]))
                break
        for test in reader.end():
            self.report.add(test.name, test.outcome, test.detail)
        if not count[0] and not (some_only and "no test has such a name" in job.output):
            self.report.failed(prefix, f"no result (exit {job.status}):\n{job.output}")

    def one(self, name, function, bench):
        started = time.monotonic()
        self.ran += 1
        try:
            function(bench)
            self.report.passed(name)
        except Skip as skip:
            self.report.skipped(name, str(skip))
        except (Failure, VmError) as failure:
            self.report.failed(name, str(failure))
        except Exception:  # A mistake in a test is a failure, not the end of the run.
            self.report.failed(name, traceback.format_exc())
        alive = [vm for vm in bench.vms if not vm.gone.is_set()]
        for vm in alive:
            # What a failed test left running is not the next one's problem.
            vm.run(f"killall -q -KILL {PROGRAMS}")
        for vm in alive:
            bench.settle(vm)
        print(f"# {name}: {time.monotonic() - started:.1f} s", flush=True)

    def unload(self, name, bench):
        """At the end all is closed: the module must go, and leave nothing."""
        for vm in bench.vms:
            if vm.gone.is_set():
                continue
            try:
                vm.run(f"killall -q -KILL {PROGRAMS}")
                illegal = bench.stats(vm).get("illegal_transition", 0)
                if illegal:
                    self.report.failed(f"{name}.states.{vm.name}", f"{illegal} illegal state transitions")
                bench.unload(vm)
            except (Failure, VmError) as failure:
                self.report.failed(f"{name}.unload.{vm.name}", str(failure))
                continue
            self.report.passed(f"{name}.unload.{vm.name}")

    def judge_logs(self, name, bench):
        for vm in bench.vms:
            if self.kind == "debug" and not vm.gone.is_set():
                self.kmemleak(f"{name}.kmemleak.{vm.name}", vm)
            log = vm.log() if vm.gone.is_set() else vm.whole_log()
            if races := klog.races_of_soft_roce(log):
                print(f"# {name}.log.{vm.name}: {races} warnings of soft-RoCE's race (see testing.rst)", flush=True)
            found = klog.complaints(log)
            for excerpt in found:
                self.report.failed(f"{name}.log.{vm.name}", excerpt)
            if not found:
                self.report.passed(f"{name}.log.{vm.name}")

    def kmemleak(self, name, vm):
        """Two scans with a pause: an object just freed by RCU is no leak."""
        result = vm.run("cd /sys/kernel/debug && echo scan >kmemleak && sleep 6 && echo scan >kmemleak && cat kmemleak")
        if not result.ok:
            self.report.failed(name, f"the scan failed:\n{result.output}")
        elif result.output.strip():
            self.report.failed(name, "\n".join(result.output.splitlines()[:80]))
        else:
            self.report.passed(name)


def main():
    parser = argparse.ArgumentParser(prog="scripts/vmtest")
    parser.add_argument("kernel", choices=["stock", "debug"])
    parser.add_argument("--one", action="store_true", help="only the tests of a single machine")
    parser.add_argument("--two", action="store_true", help="only the tests of two machines")
    parser.add_argument("--scale", type=float, default=1,
                        help="so much more of everything that the suite inside counts")
    parser.add_argument("patterns", nargs="*", help="only tests whose names contain one of these")
    args = parser.parse_intermixed_args()
    report = Report()
    print("TAP version 13")
    vmtests.load()
    suite = Suite(args.kernel, args.patterns, report, args.scale)
    counts = [count for count, only in ((2, args.two), (1, args.one)) if only or not (args.one or args.two)]
    try:
        for count in counts:
            suite.run(count)
    except KeyboardInterrupt:
        say("  stopped")
        report.failed("interrupted", "stopped before the end")
    if not suite.ran:
        report.failed("patterns", "no test has such a name")
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
