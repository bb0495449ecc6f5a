# SPDX-License-Identifier: GPL-2.0
"""The test adapter (tools/adapter): verbs of other projects' programs, SDP over it, and misbehaving guests."""

import contextlib
import functools
import io
import re

from vmlib.bench import Bench, expect, present, test, wait_for
from vmlib.demo import by_adapter, picture, show_adapter
from vmlib.machine import Vm
from vmlib.measuring import Servers
from vmlib.rates import PATIENT, QperfServer, qperf

over_adapter = functools.partial(test, kinds=("stock",), adapter="pvrdma")
DEVICE = "vmw_pvrdma0"
# The index of the GID of the IPv4 address; index 0 is the link-local address.
GID = 1


# The TCP port on which the examples of libibverbs and perftest exchange addresses, in hexadecimal digits.
EXAMPLES_PORT = f"{18515:04X}"


def between(bench: Bench, server: str, client: str, seconds: float = 60) -> str:
    """Runs a program's server in one machine and its client in the other. Returns the client's output."""
    job = bench.b.spawn(f"exec {server}")
    # Clients give up or crash if no server listens. The RDMA CM shows LISTEN before it accepts
    # requests; it accepts them once all threads of the server sleep.
    name = server.split()[0]
    listens = (f"rdma resource show cm_id | grep LISTEN | grep -qw {name[:15]} && "
               f"! grep -h ^State /proc/$(pidof {name})/task/*/status | grep -qv sleeping || "
               f"grep -qE '^ *[0-9]+: [0-9A-F]+:{EXAMPLES_PORT} .* 0A ' /proc/net/tcp /proc/net/tcp6")
    try:
        wait_for(lambda: bench.b.run(listens).ok or job.ended.is_set(), bench.limit(20), f"{name} does not listen")
        expect(not job.ended.is_set(), f"the server has ended: {job.output}")
        return bench.succeed(bench.a.spawn(f"{client} 2>&1"), seconds)
    finally:
        job.kill()
        job.wait(10)


def streams(bench: Bench, vm: Vm, port: int, count: int = 1, size: int = 1 << 20) -> None:
    """Streams in both directions between two programs of one machine."""
    job = bench.stream(vm, "listen", port, count, size)
    wait_for(lambda: vm.check(f"sdpctl ss -lH --sport {port}"), bench.limit(20), "nobody listens")
    address = bench.address(vm)
    connecting = vm.spawn(f"exec selftest stream --family sdp --connect {address}:{port} --conns {count} "
                          f"--bytes {size} --seed 1")
    for ended in (connecting, job):
        bench.succeed(ended, 60)


@over_adapter()
def connection_manager(bench: Bench) -> None:
    """rping: connection manager, Sends, Reads and Writes. The program compares each byte."""
    address = bench.address(bench.b)
    for size in (64, 65000):
        before = bench.adapter.carried()
        between(bench, f"rping -s -V -a {address} -C 10 -S {size}", f"rping -c -V -a {address} -C 10 -S {size}")
        # Each round sends the bytes by a Read and returns them by a Write.
        carried = bench.adapter.carried() - before
        expect(carried >= 2 * 10 * size, f"{carried} bytes were carried")


@over_adapter()
def pingpongs(bench: Bench) -> None:
    """The examples of libibverbs: polling, events, datagrams, a shared receive queue."""
    for program, options in (("rc", "-c"), ("rc", "-c -e"), ("ud", "-c"), ("srq", "-c -q 4"),
                             ("rc", "-c -s 1000000 -n 50")):
        command = f"ibv_{program}_pingpong -d {DEVICE} -g {GID} {options}"
        output = between(bench, command, f"{command} {bench.address(bench.b)}")
        expect(re.search(r"bytes in .* seconds", output) and "invalid" not in output, output)


@over_adapter()
def performance_tests(bench: Bench) -> None:
    """perftest: each kind of request, from one byte to one megabyte."""
    for name in ("send_bw", "write_bw", "read_bw", "send_lat", "write_lat", "read_lat", "atomic_bw", "atomic_lat"):
        sizes = ("8",) if name.startswith("atomic") else ("1", "4096", "1048576")
        for size in sizes:
            # Without the RDMA CM: its client may ask before the server listens, and crashes when it tries again.
            command = f"ib_{name} -d {DEVICE} -x {GID} -F -n 50 -s {size}"
            output = between(bench, command, f"{command} {bench.address(bench.b)}")
            expect(re.search(rf"^ *{size} +50 ", output, re.MULTILINE), output)


@over_adapter()
def qperf_by_verbs(bench: Bench) -> None:
    """qperf: each of its tests of a reliable connection. The tests of atomic operations compare the results."""
    address = bench.address(bench.b)
    with QperfServer(bench.b):
        for name in ("rc_bw", "rc_bi_bw", "rc_rdma_read_bw", "rc_rdma_write_bw"):
            rate = qperf(bench.a, address, name, 65536, 1)
            expect(rate > 0, f"{name}: {rate} MB/s")
        for name in ("rc_lat", "rc_rdma_read_lat", "rc_rdma_write_lat", "rc_rdma_write_poll_lat"):
            latency = qperf(bench.a, address, name, 1, 1)
            expect(latency > 0, f"{name}: {latency} us")
        for name in ("rc_fetch_add_mr", "rc_compare_swap_mr", "ver_rc_fetch_add", "ver_rc_compare_swap"):
            output = bench.a.check(f"qperf -cm1 {address} {PATIENT} -t 1 {name}")
            expect(re.search(r"(msg_rate|latency) += +[1-9]", output), output)


@over_adapter()
def bytes_by_every_way(bench: Bench) -> None:
    """Streams of one byte to one megabyte in both directions. The adapter's counters show that it carried them."""
    for number, size in enumerate((1, 1000, 70000, 1 << 20)):
        before = bench.adapter.carried()
        port = 7300 + number
        jobs = [bench.stream(bench.b, "listen", port, 4, size)]
        wait_for(functools.partial(bench.b.check, f"sdpctl ss -lH --sport {port}"), bench.limit(20), "nobody listens")
        jobs.append(bench.stream(bench.a, "connect", port, 4, size))
        for job in jobs:
            output = bench.succeed(job, 60)
            checked = re.search(r"byte-check: (\d+) bytes, (\d+) wrong", output)
            expect(checked and checked.groups() == (str(4 * size), "0"), output)
        carried = bench.adapter.carried() - before
        expect(carried >= 8 * size, f"{carried} bytes were carried")
    stats = bench.stats(bench.a)
    # The adapter moves bytes without the CPU of the machine, so the default is zero-copy for large
    # sends.
    expect(stats["advert_posted"] > 0, "no send went without a copy")


@over_adapter()
def demonstration(bench: Bench) -> None:
    """The part of `make demo` that uses the adapter: each mode takes effect, and the table and the chart
    contain all modes."""
    rows = by_adapter(bench)
    for name in ("BSDP", "ZSDP", "SinkAvail"):
        sender, receiver = present(rows[name].counts, f"the module has counted nothing for {name}")
        copied = (sender["tx_copied_bytes"], receiver["rx_copied_bytes"])
        # KiB copied per MiB. The request and the answer are copied in every mode.
        expect(min(copied) > 1000 if name == "BSDP" else max(copied) < 50, f"{name} copied {copied}")
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        show_adapter(bench, rows)
    expect(re.findall(r"^  (\S.*?)  +[1-9]\d* +\d", shown.getvalue(), re.MULTILINE) == list(rows), shown.getvalue())
    path = f"{bench.a.folder}/demo.svg"
    picture(rows, path)
    with open(path, encoding="utf-8") as file:
        drawn = file.read()
    expect("<svg" in drawn and all(f">{title}</text>" in drawn for title in rows), drawn[:2000])


@over_adapter(machines=1)
def driver_comes_and_goes(bench: Bench) -> None:
    """The device is reset with its driver and keeps no resources."""
    vm = bench.a
    for number in range(3):
        bench.unload(vm)
        vm.check("rmmod vmw_pvrdma")
        machine = bench.adapter.counters()[0]
        expect(not machine["active"] and machine["keys"] == machine["completion_queues"] == 0, machine)
        vm.check("modprobe vmw_pvrdma && modprobe ib_sdp")
        wait_for(lambda: "ACTIVE" in vm.run(f"rdma link show {DEVICE}/1").output, bench.limit(20), "not active")
        streams(bench, vm, 7320 + number)


@over_adapter(breaks=True)
def machine_vanishes(bench: Bench) -> None:
    """A connection to a machine that has vanished ends, and the other machine's adapter keeps working."""
    before = bench.adapter.carried()
    bench.stream(bench.b, "listen", 7330, 4, 256 << 20)
    job = bench.stream(bench.a, "connect", 7330, 4, 256 << 20)
    wait_for(lambda: bench.adapter.carried() - before > 4 << 20, bench.limit(20), "the streams do not begin")
    bench.b.kill()
    expect(bench.finish(job, 120) != 0, f"the streams have ended well:\n{job.output}")
    wait_for(lambda: not bench.adapter.counters()[1]["active"], 20, "the adapter of the machine that is gone is active")
    before = bench.adapter.counters()[0]["total"]["bytes"]
    bench.b = bench.a
    streams(bench, bench.a, 7331)
    expect(bench.adapter.counted(bench.a)["total"]["bytes"] > before,
           "the adapter of the machine that is left carries nothing")


@over_adapter()
def the_faster_way_is_chosen(bench: Bench) -> None:
    """Sends go by copy if they take less time so, unless the administrator has set a size for the other ways."""
    with Servers(bench) as servers:
        def stream() -> tuple[int, int]:
            """Bytes that went by copy because that is faster, and bytes that did not."""
            before = bench.stats(bench.a)
            servers.measure("sdp", "bw", "bw 65536 --seconds 2")
            after = bench.stats(bench.a)
            slower, read, written = (after[name] - before[name]
                                     for name in ("by_copy_Slower", "tx_zcopy_bytes", "sink_written_bytes"))
            return slower << 16, read + written
        # A copy of 64 KiB takes 20 us here, and the doorbells of an advert more than 100.
        # A pause of the host during a short trial may decide it.
        tries = [stream() for _ in range(3)]
        expect(any(slower > uncopied > 0 for slower, uncopied in tries),
               f"bytes that went by copy, and the others: {tries}")
        bench.a.check("sdpctl set net.sdp.zcopy_thresh=64K")
        try:
            slower, uncopied = stream()
            expect(slower == 0 and uncopied > 0, f"with a size: {slower} bytes went by copy, {uncopied} did not")
        finally:
            bench.a.check("sdpctl set net.sdp.zcopy_thresh=-1")


@over_adapter()
def receives_poll_before_they_sleep(bench: Bench) -> None:
    """net.core.busy_read: bytes arrive within this time, so the receives do not sleep."""
    def polled(microseconds: int) -> list[int]:
        """The number of waits of each machine that ended without sleep."""
        for vm in bench.vms:
            vm.check(f"echo {microseconds} >/proc/sys/net/core/busy_read")
        before = [bench.stats(vm)["busy_polled"] for vm in bench.vms]
        with Servers(bench) as servers:
            servers.measure("sdp", "lat", "lat 1 --seconds 1")
        return [bench.stats(vm)["busy_polled"] - count for vm, count in zip(bench.vms, before, strict=True)]
    try:
        counts = polled(5000)
        expect(min(counts) > 10, f"{counts} waits have ended without sleep")
    finally:
        counts = polled(0)
    expect(max(counts) == 0, f"{counts} waits have polled")


@over_adapter()
def rings_harm_their_program_only(bench: Bench) -> None:
    """A program overwrites its own rings. The log names each ring, the queue's program has an event and can destroy
    its queues, and connections of both machines continue."""
    before = bench.adapter.counters()
    earlier = len(bench.adapter.said(bench.a))
    job = bench.a.spawn(f"exec hostile --local {bench.address(bench.a)} --rings --timeout-scale {bench.limit(1)}")
    streams(bench, bench.b, 7360, 4)
    queue_pairs = dict(line.split(": ") for line in bench.succeed(job, 60).splitlines())
    said = bench.adapter.said(bench.a)[earlier:]
    nonsense = "the number 0xc0ffee is out of range"
    for ring, line in (("Sends", "queue pair: the rings of {} are invalid: "),
                       ("Receives", "queue pair: the rings of {} are invalid: "),
                       ("Completions", r"completion queue: \d+: "),
                       ("SharedReceives", r"shared receive queue: \d+: ")):
        wanted = line.format(queue_pairs[ring]) + nonsense
        expect(any(re.fullmatch(wanted, found) for found in said), f"no line {wanted}:\n" + "\n".join(said))
    after = bench.adapter.counters()
    counts = {kind: count - before[0]["complaints"].get(kind, 0) for kind, count in after[0]["complaints"].items()}
    # Besides the four of the above, those of the numbers that were overwritten at random.
    expect(counts["queue pair"] > 20 and counts["completion queue"] > 2, counts)
    expect(after[1]["complaints"] == before[1]["complaints"], after[1])
    expect(all(machine["active"] and machine["error"] == 0 for machine in after), after)
    streams(bench, bench.a, 7361, 4)


# Writes numbers to each register and doorbell and to random ones, through the sysfs files of the
# device's memory. A view of items writes an item by one access of its width.
NONSENSE = """
import mmap, os, random, sys
random.seed(int(sys.argv[2]))
def region(number):
    path = f'{sys.argv[1]}/resource{number}'
    with open(path, 'r+b') as file:
        view = memoryview(mmap.mmap(file.fileno(), os.path.getsize(path)))
    return {width: view.cast(kind) for width, kind in ((1, 'B'), (2, 'H'), (4, 'I'), (8, 'Q'))}
registers, doorbells = region(1), region(2)
def number():
    return random.choice([random.getrandbits(64), random.randrange(8),
                          random.randrange(64) | random.getrandbits(3) << 29])
def write(region, at):
    width = random.choice([4, 4, 4, 4, 1, 2, 8])
    region[width][at // width] = number() % (1 << 8 * width)
for _ in range(5000):
    if random.random() < 0.7:
        page = random.choice([0, random.randrange(len(doorbells[1]) // 4096)])
        write(doorbells, 4096 * page + random.choice([0, 4, 8, 4 * random.randrange(1024)]))
    else:
        write(registers, 4 * random.choice([1, 3, 4, 7, random.randrange(1024)]))
    if random.random() < 0.1:
        width = random.choice([1, 2, 4, 8])
        registers[width][random.randrange(4096 // width)]
registers[4][3] = 2
registers[4][3] = 77
print('error', registers[4][5])
"""
# The error register after an invalid value of the register CTL.
INVALID = 22


@over_adapter(breaks=True)
def nonsense_harms_its_machine_only(bench: Bench) -> None:
    """A guest writes arbitrary values to its device. The log names them, the guest's device is in error, and
    connections of the other machine continue."""
    device = bench.a.check("dirname $(grep -l 0x0820 /sys/bus/pci/devices/*/device)")
    bench.a.check(f"cat >/tmp/nonsense.py <<'END'\n{NONSENSE}\nEND")
    # Its kernel may log anything, and its connections may end in any way.
    bench.a.check("echo 0 >/proc/sys/kernel/printk")
    bench.stream(bench.b, "listen", 7340, 4, 256 << 20)
    bench.stream(bench.a, "connect", 7340, 4, 256 << 20)
    for seed in range(4):
        job = bench.a.spawn(f"exec python3 /tmp/nonsense.py {device} {seed}")
        streams(bench, bench.b, 7341 + seed, 4)
        output = bench.succeed(job, 60)
        expect(output.split() == ["error", str(INVALID)], f"the error register: {output}")
    before = bench.adapter.counters()
    expect(before[0]["doorbells"] > 4000, f"the nonsense did not reach the adapter: {before[0]}")
    expect(before[0]["error"] == INVALID and not before[0]["active"], before[0])
    said = bench.adapter.said(bench.a)
    for line in (r"CTL: the value 0x4d is invalid", r"CTL: the shared region does not exist",
                 r"register: a write of 0x[0-9a-f]+ at 0x[0-9a-f]+, where",
                 r"command: the shared region does not exist",
                 r"doorbell of queue pairs: there is no \d+", r"doorbell of completion queues: there is no \d+",
                 r"doorbell of shared receive queues: there is no \d+",
                 r"doorbell: a write of 0x[0-9a-f]+ at 0x[0-9a-f]+ of a page",
                 *(rf"access: a write of {width} bytes at 0x[0-9a-f]+ of BAR 1" for width in (1, 2, 8)),
                 *(rf"access: a write of {width} bytes at 0x[0-9a-f]{{4,}} of BAR 2" for width in (1, 2, 8))):
        expect(any(re.match(line, found) for found in said), f"no line {line}:\n" + "\n".join(said[:200]))
    bench.b.run("killall -q -KILL selftest")
    streams(bench, bench.b, 7350, 4)
    machines = bench.adapter.counters()
    expect(machines[1]["active"] and machines[1]["error"] == 0 and not machines[1]["complaints"],
           f"{machines[1]}\n" + "\n".join(bench.adapter.said(bench.b)))
    bench.a.kill()
