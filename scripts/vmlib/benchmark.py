# SPDX-License-Identifier: GPL-2.0
"""`make bench`: prints figures; nothing here passes or fails.

The speed of emulated machines changes from second to second, so values that are compared are measured in
turns (SDP, raw, SDP, raw ...) in one run. A figure is the median of five measurements, or of more where the
differences are small, with the smallest and the largest value beside it.
"""

import argparse
import functools
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from .apps import MACHINES, apps
from .bench import Bench, Failure, wait_for
from .crossover import crossover
from .figures import FOLDER, figures
from .figures import ROUNDS as ROUNDS_OF_FIGURES
from .instructions import instructions, statistics_cost
from .locks import locks
from .machine import Job, Vm, VmError
from .measuring import COUNTED, MIB, MODES, RAW, ROUNDS, Figure, Servers, heading, in_turns, ratio, with_mode
from .rates import QperfServer, qperf
from .setup import Kernel, kernels, machines, say
from .where import where

# Duration of a measurement with qperf: the emulator's speed changes from second to second.
RAW_SECONDS = 10
# Duration of a measurement with sdpbench: differences of a few percent in latency must be visible.
SECONDS = {"bw": 1, "lat": 3}
# The number of turns, for the same reason.
TURNS = {"bw": ROUNDS, "lat": 9}
SIZES = [1, 64, 1024, 4096, 16384, 65536, 262144, MIB]
MODE_SIZES = [16384, 65536, 262144, MIB]
IDLE = 1000
# The numbers of idle connections beside which one more is timed.
HELD = [0, 100, 1000, 10000]
# The number of connections whose allocations are traced.
FEW = 50
# Connections at a time between machines of this size.
MANY, SMALL_MIB = 10000, 1024


def raw(bench: Bench) -> None:
    """SDP, verbs and TCP, all measured by qperf. Both sides sleep for completions (no polling); qperf posts as
    many receives as its queue holds."""
    heading("qperf: 64 KiB messages in MB/s, 1 byte one way in us; median of five (least to most)")
    peer = bench.address(bench.b)
    with QperfServer(bench.b):
        bandwidth = in_turns({name: functools.partial(qperf, bench.a, peer, f"{name}_bw", 65536, RAW_SECONDS)
                              for name in ("sdp", "rc", "tcp")})
        latency = in_turns({name: functools.partial(qperf, bench.a, peer, f"{name}_lat", 1, RAW_SECONDS)
                            for name in ("sdp", "rc", "tcp")})
    for name in ("sdp", "rc", "tcp"):
        print(f"  {name + '_bw':<8}{bandwidth.get(name, 'not measured')!s:<36}"
              f"{name + '_lat':<8}{latency.get(name, 'not measured')!s}")
    print(f"  sdp_bw / rc_bw    {ratio(bandwidth, 'sdp', 'rc')}   (aim: at least 0.9)")
    print(f"  sdp_lat / rc_lat  {ratio(latency, 'sdp', 'rc')}   (aim: at most 1.25)")


def sizes(bench: Bench) -> None:
    """The same program over SDP, rsockets (librspreload) and TCP."""
    for what, unit in (("bw", "MB/s"), ("lat", "us one way")):
        heading(f"sdpbench {what}: {unit}; median of {TURNS[what]} (least to most)")
        print(f"  {'bytes':>8}  {'sdp':<32}{'rsockets':<32}{'tcp':<32}sdp/rsockets")
        with Servers(bench) as servers:
            for size in SIZES:
                load = f"{what} {size} --seconds {SECONDS[what]}"
                got = in_turns({name: functools.partial(servers.measure, name, what, load)
                                for name in ("sdp", "rsockets", "tcp")}, TURNS[what])
                cells = "".join(f"{got.get(name, 'not measured')!s:<32}" for name in ("sdp", "rsockets", "tcp"))
                print(f"  {size:>8}  {cells}{ratio(got, 'sdp', 'rsockets')}", flush=True)


# Ratios with targets.
RATIOS = (("AZ-SDP", "ZSDP"), ("AZ-SDP", "raw Read"), ("SinkAvail", "raw Write"))


def modes_row(bench: Bench, servers: Servers, title: str, arguments: str, raw_bytes: int | None = None) -> None:
    """One load, with each way in turn; with `raw_bytes` also with verbs alone, in messages of this size."""
    counted: dict[str, list[list[dict[str, float]]]] = {name: [] for name in MODES}

    def measure(name: str) -> float:
        rate, counts = with_mode(bench, servers, MODES[name], arguments)
        counted[name].append(counts)
        return rate
    measurements = {name: functools.partial(measure, name) for name in MODES}
    if raw_bytes:
        peer = bench.address(bench.b)
        measurements |= {name: functools.partial(qperf, bench.a, peer, test, raw_bytes) for name, test in RAW.items()}
    got = in_turns(measurements)
    print(f"  {title}")
    for name, figure in got.items():
        cells = ["".join(f"{Figure([counts[side][key] for counts in counted[name]]).median:>8.0f} {what}"
                         for key, what in names.items())
                 for side, names in enumerate(COUNTED)] if counted.get(name) else ["", ""]
        print(f"    {name:<12}{figure!s:<34}{cells[0]:<86}{cells[1]}")
    for one, other in RATIOS:
        if one in got and other in got:
            print(f"    {one} / {other}: {ratio(got, one, other)}")
    sys.stdout.flush()


def modes(bench: Bench) -> None:
    """The ways of sending and receiving, each forced, side by side."""
    parts: Sequence[tuple[str, Sequence[tuple[str, str, int | None]]]] = (
            ("Sends of so many bytes", [(f"{size}", f"bw {size}", size) for size in MODE_SIZES]),
            ("With computation between sends of 64 KiB: so many us",
             [(f"{us}", f"bw 65536 --compute {us}", None) for us in (500, 2000)]),
            ("With computation between receives of 64 KiB: so many us",
             [(f"{us}", f"bw 65536 --peer-compute {us}", None) for us in (500, 2000)]),
            ("64 KiB, the buffer overwritten after so many sends",
             [(f"{window}", f"bw 65536 --overwrite {window}", None) for window in (1, 16)]))
    for title, loads in parts:
        heading(f"{title}; MB/s at the receiver; per MiB the sender's counts and the receiver's")
        with Servers(bench) as servers, QperfServer(bench.b):
            for name, load, raw_bytes in loads:
                modes_row(bench, servers, name, f"{load} --seconds 2", raw_bytes)


def rdma_cm(bench: Bench) -> float:
    """Microseconds for one connection by plain rdma_cm with a queue pair, from the creation of the id until it
    is connected: the sum of the steps that cmtime measures."""
    peer = bench.address(bench.b)
    server = bench.b.spawn(f"exec cmtime -b {peer} -c 1")
    time.sleep(1)
    result = bench.a.run(f"exec cmtime -s {peer} -c 1", 60)
    server.kill()
    server.wait(10)
    match = re.search(r"^full connect\s+(\d+)", result.output, re.MULTILINE)
    if not match:
        raise VmError(f"cmtime ended with {result.rc}: {result.output}")
    return float(match[1])


def setup(bench: Bench) -> None:
    """Connections made one after the other."""
    heading("Connection set-up: us; median of five (least to most), each a mean of 20 but for rdma_cm")
    with Servers(bench) as servers:
        measurements = {"rdma_cm": functools.partial(rdma_cm, bench)}
        measurements |= {f"{name} {what}": functools.partial(servers.measure, name, what, "connect 20")
                         for name in ("sdp", "rsockets", "tcp") for what in ("connect", "session")}
        got = in_turns(measurements)
    for name, figure in got.items():
        print(f"  {name:<20}{figure}")
    print(f"  sdp connect / rdma_cm  {ratio(got, 'sdp connect', 'rdma_cm')}   (aim: at most 1.2)")


def connections(bench: Bench) -> None:
    """The set-up and the end of a connection beside many others, which must not slow them down."""
    heading("Set-up beside idle connections: us; median of five (least to most), each a mean of 50")
    for count in HELD:
        with Servers(bench) as servers:
            job = hold(bench, servers, count) if count else None
            got = in_turns({what: functools.partial(servers.measure, "sdp", what, "connect 50")
                            for what in ("connect", "session")})
            start = time.monotonic()
            if job:
                job.kill()
        # Both programs have ended: wait until everything is released.
        while any(sockets_of(vm) for vm in bench.vms) and time.monotonic() < start + 300:
            time.sleep(0.1)
        ends = f"   {count} ended in {time.monotonic() - start:.1f} s" if job else ""
        print(f"  beside {count:>6}  connect {got['connect']}  connect to close {got['session']}{ends}", flush=True)


def counters(bench: Bench) -> None:
    """The module's counters for each MiB and for each message."""
    heading("The module's counters, per MiB of payload; they do not depend on the emulator")
    shown = ["tx_copied_bytes", "rx_copied_bytes", "rx_compacted_bytes", "send_posted", "send_signaled",
             "recv_posted", "completions", "interrupts", "deferred", "wake_reader", "wake_writer",
             "credit_stall", "queue_stall", "credit_update_sent", "credit_update_received",
             "sent_Data", "received_Data"]
    columns: dict[tuple[int, int], dict[str, float]] = {}
    with Servers(bench) as servers:
        for size in (64, 4096, 65536, MIB):
            before = [bench.stats(vm) for vm in bench.vms]
            servers.measure("sdp", "bw", f"bw {size} --seconds 2")
            time.sleep(0.5)
            after = [bench.stats(vm) for vm in bench.vms]
            mib = (after[0]["tx_bytes"] - before[0]["tx_bytes"]) / MIB
            for side, (b, a) in enumerate(zip(before, after, strict=True)):
                columns[size, side] = {name: (a[name] - b[name]) / mib for name in shown if name in a}
    print(f"  {'':<24}" + "".join(f"{f'{size} B {side}':>18}" for size in (64, 4096, 65536, MIB)
                                  for side in ("sends", "receives")))
    for name in shown:
        cells = "".join(f"{columns[size, side].get(name, 0):>18.1f}" for size in (64, 4096, 65536, MIB)
                        for side in (0, 1))
        print(f"  {name:<24}{cells}")


def memory_of(vm: Vm) -> dict[str, int]:
    """Bytes in use: all memory of the kernel and of programs, slabs, and soft-RoCE's queues in vmalloc (by the
    name of the caller)."""
    vm.check("sync; echo 3 >/proc/sys/vm/drop_caches; sleep 1")
    info = {name: int(value) * 1024 for name, value in
            re.findall(r"^(\w+):\s+(\d+) kB$", vm.check("cat /proc/meminfo"), re.MULTILINE)}
    areas = [int(size) for size in re.findall(r"^\S+\s+(\d+) (?:rxe_|do_mmap_info|vmalloc_user).*$",
                                              vm.check("cat /proc/vmallocinfo"), re.MULTILINE)]
    # Free pages in per-CPU lists are not in MemFree.
    kept = sum(int(pages) for pages in re.findall(r"^\s+count:\s+(\d+)$", vm.check("cat /proc/zoneinfo"), re.MULTILINE))
    return {"all": info["MemTotal"] - info["MemFree"] - 4096 * kept, "slab": info["Slab"],
            "programs": info["AnonPages"] + info["PageTables"] + info["KernelStack"],
            # Each area has a guard page that takes no memory.
            "queues": sum(areas) - 4096 * len(areas)}


def slabs_of_ours(bench: Bench, servers: Servers) -> list[float]:
    """Bytes of a connection on each side in the socket's own cache and in the module's allocations by kmalloc:
    the kernel's trace names the callers."""
    tracing = "/sys/kernel/tracing"
    for vm in bench.vms:
        vm.check(f"mountpoint -q {tracing} || mount -t tracefs tracefs {tracing}; cd {tracing} && "
                 "echo 20000 >buffer_size_kb && echo >trace && "
                 "echo 1 >events/kmem/kmalloc/enable && echo 1 >events/kmem/kfree/enable")
    job = hold(bench, servers, FEW)
    found: list[float] = []
    for vm in bench.vms:
        trace = vm.check(f"cd {tracing} && echo 0 >events/kmem/enable &&"
                         " grep -E 'kmalloc: .*ib_sdp\\]|kfree:' trace; echo >trace")
        live: dict[str, int] = {}
        for event, rest in re.findall(r" (kmalloc|kfree): (.*)$", trace, re.MULTILINE):
            fields = dict(word.split("=", 1) for word in rest.split() if "=" in word)
            if event == "kmalloc":
                live[fields["ptr"]] = int(fields["bytes_alloc"])
            else:
                live.pop(fields["ptr"], None)
        cache = re.search(r"^SDP\s+\d+\s+\d+\s+\d+\s+(\d+)\s+(\d+)", vm.check("cat /proc/slabinfo"), re.MULTILINE)
        if not cache:
            raise VmError(f"{vm.name}: no cache of the sockets in /proc/slabinfo")
        found.append(sum(live.values()) / FEW + int(cache[2]) * 4096 / int(cache[1]))
    job.kill()
    job.wait(60)
    return found


def hold(bench: Bench, servers: Servers, count: int, transport: str = "sdp", command: str = "idle") -> Job:
    """Starts a program that holds connections, with sdpbench's command `idle` or `many`."""
    job = bench.a.spawn(f"{servers.prefix(transport)} {command} {count}")
    end = time.monotonic() + 600
    while "ready" not in job.output and not job.ended.is_set() and time.monotonic() < end:
        time.sleep(0.5)
    if "ready" not in job.output:
        job.kill()
        raise VmError(f"{count} connections did not come about: {job.output}")
    time.sleep(3)
    return job


def sockets_of(vm: Vm) -> int:
    """The number of sockets that have a port on a machine."""
    return len(vm.check("cat /proc/net/sdp").splitlines()) - 1


def wait_for_no_sockets(bench: Bench) -> None:
    end = time.monotonic() + 120
    while any(sockets_of(vm) for vm in bench.vms) and time.monotonic() < end:
        time.sleep(1)
    time.sleep(3)


def hold_and_close(bench: Bench) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
    """The memory in use with a thousand idle connections, and after they have ended."""
    with Servers(bench) as servers:
        job = hold(bench, servers, IDLE)
        during = [memory_of(vm) for vm in bench.vms]
        job.kill()
        job.wait(60)
    wait_for_no_sockets(bench)
    return during, [memory_of(vm) for vm in bench.vms]


def memory(bench: Bench) -> None:
    """A thousand idle connections that have moved one byte each way."""
    heading(f"Memory of an idle connection: KiB each, over {IDLE} connections")
    with Servers(bench) as servers:
        # The first connections pay for shared allocations.
        servers.measure("sdp", "connect", "connect 20")
        ours = slabs_of_ours(bench, servers)
    wait_for_no_sockets(bench)
    before = [memory_of(vm) for vm in bench.vms]
    during, after = hold_and_close(bench)
    _, again = hold_and_close(bench)
    print(f"  {'':<42}{'connecting side':>18}{'accepting side':>18}")

    def row(title: str, values: Sequence[float]) -> None:
        print(f"  {title:<42}" + "".join(f"{value / 1024:>18.1f}" for value in values))
    grown = [{name: (d[name] - b[name]) / IDLE for name in d} for b, d in zip(before, during, strict=True)]
    rest = [g["all"] - g["programs"] - g["queues"] - g["slab"] for g in grown]
    row("all, less the programs' own (aim: 64)", [g["all"] - g["programs"] for g in grown])
    row("  soft-RoCE's queues (vmalloc)", [g["queues"] for g in grown])
    row("  other slabs: the CM, soft-RoCE, the file", [g["slab"] - own for g, own in zip(grown, ours, strict=True)])
    row("  ours (aim: 32)", [own + pages for own, pages in zip(ours, rest, strict=True)])
    row("    slabs: the socket and its tables", ours)
    row("    the rest: receive buffers", rest)

    def left(title: str, now: list[dict[str, int]], then: list[dict[str, int]]) -> None:
        row(title, [(n["all"] - t["all"]) / IDLE for n, t in zip(now, then, strict=True)])
    # Hundreds of kernel threads have closed them at the same time, and stay idle for some minutes.
    left("kept by the kernel after the last close", after, before)
    left("and what another thousand adds to that", again, after)


def in_use(bench: Bench, transport: str) -> int:
    """The sockets of all machines. A connection of TCP whose close has been answered does not count."""
    command = {"tcp": "awk '/^TCP:/ {print $3}' /proc/net/sockstat", "sdp": "wc -l </proc/net/sdp"}[transport]
    return sum(int(vm.check(command)) for vm in bench.vms)


def wait_until_in_use(bench: Bench, transport: str, count: int) -> None:
    wait_for(lambda: in_use(bench, transport) <= count, 300, f"{transport}: connections do not end")


def many(bench: Bench) -> None:
    """Many connections at a time between two small machines, each with requests and responses."""
    heading(f"{MANY} connections between machines of {SMALL_MIB} MiB, two requests of 64 bytes on each")
    print(f"  {'':<8}{'connects':>12}{'requests':>12}{'memory, KiB a connection':>40}{'all ended':>14}")
    print(f"  {'':<8}{'per second':>12}{'per second':>12}{'connecting side':>20}{'accepting side':>20}{'after, s':>14}")
    for name in ("tcp", "sdp"):
        with Servers(bench) as servers:
            idle = in_use(bench, name)
            before = [memory_of(vm) for vm in bench.vms]
            job = hold(bench, servers, MANY, name, "many")
            rates = dict(re.findall(r"^(connects|requests) ([\d.]+) /s$", job.output, re.MULTILINE))
            during = [memory_of(vm) for vm in bench.vms]
            start = time.monotonic()
            job.kill()
            wait_until_in_use(bench, name, idle)
            ended = time.monotonic() - start
        wait_for_no_sockets(bench)
        kib = [(d["all"] - d["programs"] - b["all"] + b["programs"]) / MANY / 1024
               for b, d in zip(before, during, strict=True)]
        print(f"  {name:<8}{float(rates['connects']):>12.0f}{float(rates['requests']):>12.0f}"
              f"{kib[0]:>20.1f}{kib[1]:>20.1f}{ended:>14.1f}", flush=True)


Parts: TypeAlias = Mapping[str, Callable[[Bench], None]]

PARTS: Parts = {"raw": raw, "sizes": sizes, "modes": modes, "crossover": crossover, "setup": setup,
                "connections": connections, "counters": counters, "memory": memory}
# In machines with little memory.
SMALL: Parts = {"many": many}
# In machines whose clocks go by their instructions.
INSTRUCTIONS = "instructions"
# Parts that run only if named: `scripts/bench` calls `statistics` twice, with two modules; `where`
# prints much.
NAMED: Parts = {"statistics": statistics_cost, "where": where}
# In machines with two processors: threads wait for locks that others hold.
BESIDE = {"locks": locks}
# Only if they are named, over the test adapter, whose link's rate they set.
FIGURES = "figures"
APPS = "apps"


def run_parts(kernel: Kernel, names: list[str], parts: Parts, about: str, cpus: int = 1,
              by_instructions: bool = False, count: int = 2, memory_mib: int = 2048) -> int:
    """Boots machines and measures the named parts (all, if none is named)."""
    chosen = [name for name in names or parts if name in parts]
    if not chosen:
        return 0
    status = 0
    with machines(kernel, count, "bench", cpus, memory_mib=memory_mib, by_instructions=by_instructions,
                  apart=cpus == 1) as vms:
        bench = Bench("stock", vms)
        for vm in vms:
            bench.load(vm)
        print(about, flush=True)
        for name in chosen:
            try:
                parts[name](bench)
            except (VmError, Failure) as error:
                # The figures of the other parts are still useful.
                print(f"  {name}: {error}")
                status = 1
    return status


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, *SMALL, FIGURES, APPS, *BESIDE, INSTRUCTIONS, *NAMED, []],
                        help="what to measure (all)")
    parser.add_argument("--adapter", action="store_true", help="by the test adapter instead of soft-RoCE")
    parser.add_argument("--into", metavar="FOLDER", default=FOLDER,
                        help="where the tables and plots of figures and apps go")
    parser.add_argument("--rounds", type=int, default=ROUNDS_OF_FIGURES,
                        help="how often each point of figures, apps and instructions is measured")
    args = parser.parse_args()
    names = args.parts
    folder = os.path.abspath(args.into)
    # The sandbox has no other folders of the host.
    kept = [os.environ["IB_SDP_TOP"], os.environ["IB_SDP_CACHE"]]
    if not any(os.path.commonpath([folder, place]) == place for place in kept):
        parser.error(f"--into: {folder} is neither in the project nor in the cache folder ({', '.join(kept)})")
    kernel = kernels()[0].with_pvrdma() if args.adapter else kernels()[0]
    about = "{} machines under QEMU (software emulation), {} each, Debian's kernel, {}"
    device = "the test adapter" if args.adapter else "soft-RoCE"
    by_adapter = {FIGURES: functools.partial(figures, folder=folder, rounds=args.rounds)}
    by_programs = {APPS: functools.partial(apps, folder=folder, rounds=args.rounds)}
    counting: Parts = {INSTRUCTIONS: functools.partial(instructions, rounds=args.rounds)}
    one, two = about.format("Two", "one processor", device), about.format("Two", "two processors", device)
    try:
        return max(run_parts(kernel, names, PARTS, f"{one}."),
                   run_parts(kernel, names, SMALL, f"{one}, {SMALL_MIB} MiB each.", memory_mib=SMALL_MIB),
                   run_parts(kernels()[0].with_pvrdma(), names, by_adapter if names else {},
                             f"{about.format('Two', 'one processor', 'the test adapter')}."),
                   run_parts(kernels()[0].with_pvrdma(), names, by_programs if names else {},
                             f"{about.format('Four', 'one processor', 'the test adapter')}.", count=MACHINES),
                   run_parts(kernel, names, BESIDE if names else {}, f"{two}.", cpus=2),
                   run_parts(kernel, names, {**counting, **(NAMED if names else {})},
                             f"{one}, whose clocks go by their instructions.", by_instructions=True))
    except VmError as error:
        say(f"bench: {error}")
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
