# SPDX-License-Identifier: GPL-2.0
"""The module's parameters, by modprobe and under /sys/module/ib_sdp/parameters."""

import contextlib
from collections.abc import Iterator
from typing import TypeAlias

from vmlib.bench import Bench, expect, test, wait_for
from vmlib.machine import Vm

PARAMETERS = "/sys/module/ib_sdp/parameters"
SYSCTLS = "/proc/sys/net/sdp"

# The first and the last value of a parameter as shown, bad values, and the text of the log about
# bad values.
Values: TypeAlias = tuple[str, str, tuple[str, ...], str]

BUFFER = ("4096", "16777216", ("4095", "16777217", "1m"), "is not a number from 4096 to 16777216")
AS_MANY = ("0", "2147483647", ("-1", "2147483648"), "is not a number from 0 to 2147483647")

VALUES: dict[str, Values] = {
    "sdp_zcopy_thresh": ("-1", "2147483647", ("-2", "2147483648", "many"), "is not a number from -1 to 2147483647"),
    "sdp_zcopy_mode": ("auto", "sink", ("-1", "5", "fast"),
                       "is not one of auto (0) copy (1) sync (2) async (3) sink (4)"),
    "sdp_fault_policy": ("copy", "block", ("2", "wait"), "is not one of copy (0) block (1)"),
    "sdp_recv_early": ("nobody", "all", ("3", "root"), "is not one of nobody (0) ptrace (1) all (2)"),
    "sdp_max_adverts": ("1", "32", ("0", "33"), "is not a number from 1 to 32"),
    "sdp_wmem_default": BUFFER,
    "sdp_rmem_default": BUFFER,
    "sdp_keepalive_time": ("1", "32767", ("0", "32768", "1h"), "is not a number from 1 to 32767"),
    "sdp_keepalive_intvl": ("1", "32767", ("0", "32768"), "is not a number from 1 to 32767"),
    "sdp_keepalive_probes": ("1", "127", ("0", "128"), "is not a number from 1 to 127"),
    "sdp_fastopen": ("0", "1", ("-1", "2"), "is not a number from 0 to 1"),
    "sdp_tcp_fallback": ("0", "1", ("-1", "2"), "is not a number from 0 to 1"),
    "sdp_max_connections": AS_MANY,
    "sdp_max_user_connections": AS_MANY,
    "sdp_max_orphans": AS_MANY,
    "top_mem_usage": ("0", "1048576", ("-1", "1048577"), "is not a number from 0 to 1048576"),
}
AT_LOAD = ("top_mem_usage", "sdp_break")

# The file under /proc/sys/net/sdp whose initial value is the parameter.
BEGINS_WITH = {f"sdp_{name}": name for name in
               ("zcopy_thresh", "zcopy_mode", "fault_policy", "max_adverts", "wmem_default", "rmem_default",
                "keepalive_time", "keepalive_intvl", "keepalive_probes", "fastopen", "tcp_fallback",
                "max_connections", "max_user_connections", "max_orphans")}


def values(kind: str) -> dict[str, Values]:
    """VALUES, and the parameter whose values differ on a test kernel."""
    most, allowed = (1023, "a number from 0 to 1023") if kind == "debug" else (0, "0")
    rules = ("0", str(most), (str(most + 1), "-1", "all"), f"is not {allowed}")
    checks = {**VALUES, "sdp_break": rules}
    if kind == "debug":
        # Each check takes a second on that kernel: one bad value is enough.
        checks = {name: (first, last, bad[:1], allowed) for name, (first, last, bad, allowed) in checks.items()}
    return checks


def read(vm: Vm, folder: str = PARAMETERS, inside: str = "") -> dict[str, str]:
    """The files of a folder as a dictionary."""
    lines = vm.check(f"{inside} sh -c 'grep . $(find {folder} -type f)'").splitlines()
    return dict(line.removeprefix(f"{folder}/").split(":", 1) for line in lines)


def is_refused(vm: Vm, name: str, value: str, allowed: str, command: str) -> None:
    """The command fails with EINVAL for a bad value, and the log names the allowed values."""
    result = vm.run(f"dmesg -c >/dev/null; {command} 2>&1; status=$?; dmesg | grep 'ib_sdp: {name}: '; exit $status")
    expect(not result.ok, f"{name}={value} is taken")
    expect("Invalid argument" in result.output, f"{name}={value}: {result.output}")
    said = [line for line in result.output.splitlines() if f"ib_sdp: {name}: " in line]
    expect(len(said) == 1 and said[0].endswith(f"{name}: '{value}' {allowed}"), f"{name}={value}: the log says {said}")


@contextlib.contextmanager
def unloaded(bench: Bench) -> Iterator[Vm]:
    """Unloads the module for the length of the block."""
    bench.unload(bench.a)
    try:
        yield bench.a
    finally:
        bench.unload(bench.a)
        bench.load(bench.a)


@test(machines=1, core=("stock",))
def parameters_by_modprobe(bench: Bench) -> None:
    checks = values(bench.kind)
    with unloaded(bench) as vm:
        for edge in (0, 1):
            wanted = {name: check[edge] for name, check in checks.items()}
            vm.check("modprobe ib_sdp " + " ".join(f"{name}={value}" for name, value in wanted.items()))
            expect(read(vm) == wanted, f"{wanted} became {read(vm)}")
            bench.unload(vm)
        for name, (_, _, bad, allowed) in checks.items():
            for value in bad:
                is_refused(vm, name, value, allowed, f"modprobe ib_sdp {name}={value}")
        # A parameter without a value.
        expect(not vm.run("modprobe ib_sdp sdp_zcopy_mode").ok, "a name alone is taken")
        # By number as well as by name.
        vm.check("modprobe ib_sdp sdp_zcopy_mode=2 sdp_zcopy_thresh=0x4000")
        now = read(vm)
        expect((now["sdp_zcopy_mode"], now["sdp_zcopy_thresh"]) == ("sync", "16384"), f"read: {now}")


@test(machines=1, core=("stock",))
def parameters_by_sysfs(bench: Bench) -> None:
    vm = bench.a
    before = read(vm)
    checks = values(bench.kind)
    expect(set(before) == set(checks), f"the parameters are {sorted(before)}")
    for name, (first, last, bad, allowed) in checks.items():
        path = f"{PARAMETERS}/{name}"
        if name in AT_LOAD:
            expect(vm.check(f"stat -c %a {path}") == "444", f"{name} can be written to")
            continue
        for value in (first, last):
            shown = vm.check(f"echo {value} >{path} && cat {path}")
            expect(shown == value, f"{name}={value} became {shown}")
        for value in bad:
            # dd reports the error code.
            is_refused(vm, name, value, allowed, f"echo {value} | dd of={path} conv=notrunc")
        shown = vm.check(f"cat {path}; echo {before[name]} >{path}")
        expect(shown == last, f"after bad values {name} was {shown}")
    expect(read(vm) == before, "the parameters were changed back")


@test(machines=1, core=("stock",))
def modinfo_has_all(bench: Bench) -> None:
    said = bench.a.check("modinfo -p ib_sdp").splitlines()
    names = {line.split(":")[0] for line in said}
    expect(names == set(values(bench.kind)), f"modinfo knows {sorted(names)}")
    expect(all(line.endswith(("(int)", "(name)")) for line in said), f"modinfo says {said}")


@test(machines=1, core=("stock",))
def version_is_that_of_the_tool(bench: Bench) -> None:
    said = bench.a.check("cat /sys/module/ib_sdp/version; modinfo -F version ib_sdp; sdpctl --version").split()
    expect(len(said) == 4 and said[0] == said[1] == said[3], f"they said {said}")


@test(machines=1)
def namespaces_begin_with_parameters(bench: Bench) -> None:
    """A new namespace starts with the current parameters; existing namespaces keep their values."""
    vm = bench.a
    parameters = read(vm)
    first = read(vm, SYSCTLS)
    names = list(BEGINS_WITH)
    try:
        for edge in (0, 1):
            vm.check("".join(f"echo {VALUES[name][edge]} >{PARAMETERS}/{name} && " for name in names) + "true")
            wanted = {BEGINS_WITH[name]: VALUES[name][edge] for name in names}
            other = read(vm, SYSCTLS, "unshare -n")
            expect(other == wanted, f"a namespace began with {other}, not {wanted}")
            expect(read(vm, SYSCTLS) == first, "the first namespace has changed")
    finally:
        vm.check("".join(f"echo {parameters[name]} >{PARAMETERS}/{name}; " for name in names))


@test(machines=1)
def first_namespace_begins_with_parameters(bench: Bench) -> None:
    with unloaded(bench) as vm:
        vm.check("modprobe ib_sdp sdp_max_adverts=5 sdp_zcopy_mode=async top_mem_usage=10")
        now = read(vm, SYSCTLS)
        # Half, three quarters and all of 10 MiB, in pages.
        mem = "1280\t1920\t2560"
        expect((now["max_adverts"], now["zcopy_mode"], now["mem"]) == ("5", "async", mem), f"it began with {now}")


@test(machines=1)
def unloaded_while_files_are_open(bench: Bench) -> None:
    """Open files do not keep the module loaded, and fail without it."""
    vm = bench.a
    bench.unload(vm)
    bench.load(vm)
    job = vm.spawn(f"exec 3<{PARAMETERS}/sdp_zcopy_mode 4<{SYSCTLS}/zcopy_mode 5<{SYSCTLS}/mem; echo open; "
                   "while [ ! -e /tmp/gone ]; do sleep 0.1; done; cat <&3; cat <&4; cat <&5; true")
    try:
        wait_for(lambda: job.lines, bench.limit(20), "the files do not open")
        vm.check("rmmod ib_sdp")
        vm.check("touch /tmp/gone")
        said = bench.succeed(job, 20)
        expect(said.count("No such device") == 1 and said.count("No such file") == 2, f"they said: {said}")
    finally:
        vm.check("rm -f /tmp/gone")
        bench.load(vm)
