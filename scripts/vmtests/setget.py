# SPDX-License-Identifier: GPL-2.0
"""sdpctl get and set: values shown, and files written."""

import re

from vmlib.bench import Bench, expect, test, wait_for
from vmlib.machine import Vm
from vmlib.schema import Setting
from vmtests.sdpctl import ask
from vmtests.settings import AT_LOAD, BEGINS_WITH, PARAMETERS, SYSCTLS, VALUES, read, unloaded


def settings(vm: Vm, names: str = "") -> dict[str, Setting]:
    """The output of `sdpctl get`, by name, without `in_use`, which changes by itself."""
    shown: list[Setting] = ask(vm, f"get {names}", "settings")["settings"]
    for one in shown:
        one.pop("in_use", None)
    return {one["name"]: one for one in shown}


def refused(vm: Vm, arguments: str, words: str, status: int = 1, before: str = "") -> None:
    """The command line fails with this exit status, and its message contains `words`."""
    result = vm.run(f"{before} sdpctl {arguments} 2>&1")
    expect(result.rc == status and words in result.output, f"{arguments}: {result.rc} {result.output}")


@test(machines=1, core=("stock",))
def get_shows_all(bench: Bench) -> None:
    """Each file with its contents."""
    vm = bench.a
    shown = settings(vm)
    for place, folder in (("sysctl", SYSCTLS), ("parameter", PARAMETERS)):
        files = {name: " ".join(value.split()) for name, value in read(vm, folder).items()}
        mine = {name: one["value"] for name, one in shown.items() if one["place"] == place}
        expect(mine == files, f"{place}: {mine}\n{files}")
    for name, one in shown.items():
        expect(one["meaning"] is not None, f"{name} has no meaning")
        # The initial value of `mem` depends on the machine's memory.
        expect(one["default"] in (one["value"], None), f"{name} is {one['value']}, not {one['default']}")
    expect(vm.check("sdpctl get -n wmem_default net.sdp.zcopy_mode") == "2097152\nauto", "not the values alone")
    text = vm.check("sdpctl get wmem_default").splitlines()
    expect(text[1].split()[:3] == ["wmem_default", "2M", "2M"], "\n".join(text))
    expect(vm.run("busybox su nobody -s /bin/sh -c 'sdpctl get' >/dev/null").ok, "an ordinary user cannot read")
    refused(vm, "get nothing", "there is no setting `nothing`")


@test(machines=1, core=("stock",))
def get_says_what_is_in_use(bench: Bench) -> None:
    """Pages used by the buffers of all sockets, next to their limit."""
    vm = bench.a

    def pages() -> int:
        shown = ask(vm, "get mem", "settings")["settings"]
        return int(shown[0]["in_use"])
    # The kernel's sum is exact up to one MiB per processor.
    vm.check("rm -f /tmp/never; mkfifo /tmp/never")
    idle = f"exec selftest idle --family sdp --conns 150 {{}} {bench.address(vm)}:7611 <>/tmp/never"
    ends = [vm.spawn(idle.format("--listen"))]
    try:
        wait_for(lambda: vm.check("sdpctl ss -lH --sport 7611"), bench.limit(20), "nobody listens")
        ends.append(vm.spawn(idle.format("--connect")))
        # 300 ends with 20 KiB of receives each.
        wait_for(lambda: pages() > 500, bench.limit(60), "the connections use no memory")
        expect(re.search(r"\(in use: [1-9]\d*\)", vm.check("sdpctl get mem")), "it is not said to people")
    finally:
        for end in ends:
            end.kill()


@test(machines=1, core=("stock",))
def set_writes(bench: Bench) -> None:
    """The first and the last value of each setting, by both names, and with units."""
    vm = bench.a
    before = settings(vm)
    try:
        for name in [name for name in VALUES if name not in AT_LOAD]:
            first, last, _, _ = VALUES[name]
            for value in (first, last):
                vm.check(f"sdpctl set {name}={value}")
                expect(vm.check(f"cat {PARAMETERS}/{name}") == value, f"{name} is not {value}")
                if name in BEGINS_WITH:
                    sysctl = BEGINS_WITH[name]
                    vm.check(f"sdpctl set net.sdp.{sysctl}={value}")
                    expect(vm.check(f"cat {SYSCTLS}/{sysctl}") == value, f"{sysctl} is not {value}")
        for text, file, value in (("wmem_default=64K", "wmem_default", "65536"),
                                  ("rmem_default=1M", "rmem_default", "1048576"),
                                  ("zcopy_thresh=16K", "zcopy_thresh", "16384"),
                                  ("mem=4M,8M,16M", "mem", "1024\t2048\t4096"),
                                  ("'mem=5000 6000 7000'", "mem", "5000\t6000\t7000")):
            vm.check(f"sdpctl set {text}")
            expect(vm.check(f"cat {SYSCTLS}/{file}") == value, f"{text}: not {value}")
        changed = ask(vm, "set wmem_default=128K max_adverts=7", "settings")["settings"]
        expect([one["value"] for one in changed] == ["131072", "7"], changed)
    finally:
        # Module parameters first: they restrict the values of the sysctls.
        for place in ("parameter", "sysctl"):
            for name, one in before.items():
                if one["place"] == place and name not in AT_LOAD:
                    vm.check(f"sdpctl set '{name}={one['value']}'")
    after = settings(vm)
    expect(after == before, f"not as before: {after}")


@test(machines=1, core=("stock",))
def set_refuses(bench: Bench) -> None:
    """Invalid settings are refused with the allowed values, and no value is written."""
    vm = bench.a
    before = settings(vm)
    for name, (first, _, bad, allowed) in VALUES.items():
        if name in AT_LOAD:
            refused(vm, f"set {name}={first}", "when the module is loaded")
            continue
        # Only the tool accepts units.
        for value in (value for value in bad if value != "1h"):
            refused(vm, f"set {name}={value}", f"{name}: '{value}' {allowed}")
            if name in BEGINS_WITH:
                sysctl = BEGINS_WITH[name]
                refused(vm, f"set {sysctl}={value}", f"{sysctl}: '{value}' {allowed}")
    for mem in ("3,2,1", "0,1,2", "1,2", "1,2,3,4", "1K,2K,4K", "a,b,c"):
        refused(vm, f"set mem={mem}", f"mem: '{mem}' is not three numbers")
    # One of two settings is invalid: none is written.
    refused(vm, "set wmem_default=64K max_adverts=33", "max_adverts: '33' is not a number from 1 to 32")
    refused(vm, "set wmem_default=64K nothing=1", "there is no setting `nothing`")
    refused(vm, "set ../../../kernel/panic=1", "there is no setting")
    refused(vm, "set wmem_default", "write NAME=VALUE", 2)
    refused(vm, "set", "NAME=VALUE", 2)
    result = vm.run("busybox su nobody -s /bin/sh -c 'sdpctl set max_adverts=3' 2>&1")
    expect(result.rc == 4 and "try it as root" in result.output, f"{result.rc} {result.output}")
    # The tool's table allows the value; the module refuses it.
    vm.check("sdpctl set sdp_recv_early=nobody")
    refused(vm, "set fault_policy=block", "sdp_recv_early", 4)
    vm.check("sdpctl set sdp_recv_early=ptrace")
    after = settings(vm)
    expect(after == before, f"something was written: {after}")


@test(machines=1, core=("stock",))
def namespaces_have_their_own(bench: Bench) -> None:
    vm = bench.a
    first = settings(vm)
    vm.check("ip netns add tool")
    try:
        vm.check("sdpctl -N tool set max_adverts=5 zcopy_mode=copy")
        other = {one["name"]: one["value"] for one in ask(vm, "-N tool get", "settings")["settings"]}
        expect((other["max_adverts"], other["zcopy_mode"]) == ("5", "copy"), other)
        expect(settings(vm) == first, "the first namespace has changed")
        expect("mem" not in other, "mem is the machine's")
        refused(vm, "-N tool set mem=1,2,3", "in the first network namespace only")
    finally:
        vm.check("ip netns del tool")


@test(machines=1, core=("stock",))
def without_the_module(bench: Bench) -> None:
    with unloaded(bench) as vm:
        for arguments in ("get", "get max_adverts", "set max_adverts=3", "get nothing"):
            refused(vm, arguments, "modprobe ib_sdp", 3)
        # A bad value is reported even without the module.
        refused(vm, "set max_adverts=99", "is not a number from 1 to 32")
