# SPDX-License-Identifier: GPL-2.0
"""A peer that dies, stops reading, or loses its network."""

import contextlib
import functools
import re
import time
from collections.abc import Iterator, Mapping

from vmlib.bench import Bench, Failure, Skip, expect, present, test, wait_for
from vmlib.machine import Job, Vm

ENDLESS = 1 << 40


def moving(bench: Bench, port: int, size: int = ENDLESS) -> tuple[Job, Job]:
    """Two streams between the machines, with data in flight."""
    server = bench.stream(bench.b, "listen", port, 2, size)
    client = bench.stream(bench.a, "connect", port, 2, size)
    before = bench.stats(bench.a)["rx_bytes"]
    wait_for(lambda: bench.stats(bench.a)["rx_bytes"] > before + bench.amount(1 << 20) or client.ended.is_set(),
             bench.limit(60), "no data moves")
    expect(not client.ended.is_set(), f"the stream ended before its time:\n{client.output}")
    return server, client


SEND_BYTES = 262144


def large_sends(bench: Bench, port: int) -> Job:
    """A sender of 256 KiB at a time that does not change its memory; its server accepts further connections.

    The send buffer has room for one send: while that send is in flight, the next one cannot be copied.
    """
    address = f"{bench.address(bench.b)}:{port}"
    server = bench.b.spawn(f"exec sdpbench --family sdp {address} serve")
    wait_for(lambda: server.lines, bench.limit(20), "sdpbench's server says nothing")
    return bench.a.spawn(f"echo {SEND_BYTES} >/proc/sys/net/sdp/wmem_default; "
                         f"exec sdpbench --family sdp {address} bw {SEND_BYTES} --seconds 1000")


def stopped_reader(bench: Bench, port: int, overwrites: bool = True) -> Job:
    """A sender whose peer has stopped reading and which reuses its memory if `overwrites`; returns its job."""
    if overwrites:
        bench.stream(bench.b, "listen", port, 1, ENDLESS)
        client = bench.stream(bench.a, "connect", port, 1, ENDLESS)
    else:
        client = large_sends(bench, port)
    # Bytes that the peer reads with RDMA Read are not part of tx_bytes.
    count = "tx_bytes" if overwrites else "advert_consumed"
    start = bench.stats(bench.a)[count]
    wait_for(lambda: bench.stats(bench.a)[count] > start, bench.limit(30), "no data moves")
    bench.b.check(f"killall -STOP {'selftest' if overwrites else 'sdpbench'}")
    last: list[int] = []

    def stalls() -> bool:
        now = bench.stats(bench.a)
        before = last[:]
        last[:] = now["tx_bytes"], now["advert_posted"], now["advert_consumed"]
        return last == before and (overwrites or outstanding(now) > 0)
    wait_for(stalls, bench.limit(30), "data still leaves for a reader that has stopped, or none waits for it")
    return client


def outstanding(now: Mapping[str, int]) -> int:
    """Source adverts that the peer has not read, that were not taken back, and whose connection has not ended."""
    return now["advert_posted"] - now["advert_consumed"] - now["advert_cancelled"] - now["advert_aborted"]


def transfer_works(bench: Bench, port: int) -> None:
    """After a disturbance a new connection must carry data."""
    server = bench.stream(bench.b, "listen", port, 2, 100_000)
    bench.succeed(bench.stream(bench.a, "connect", port, 2, 100_000), 120)
    bench.succeed(server, 60)


@test(breaks=True, core=("stock",))
def machine_vanishes(bench: Bench) -> None:
    """The survivor's programs get an error. No program waits for ever, neither for an acknowledgement nor, with
    nothing in flight, for a reader."""
    stalled = stopped_reader(bench, 7316)
    _, client = moving(bench, 7301)
    bench.b.kill()
    for job in (client, stalled):
        status = bench.finish(job, 240)
        expect(status not in (0, None), f"the stream ended with {status} although the peer is gone")
    expect(bench.stats(bench.a)["probe"] > 0, "nobody asked for the peer whose reader has stopped")
    bench.unload(bench.a)
    bench.load(bench.a)


def idle(bench: Bench, vm: Vm, port: int, options: str) -> Job:
    """Ends of connections on a machine. They stay until /tmp/end exists, or until bytes arrive."""
    # A previous test may have left it.
    vm.check("rm -f /tmp/end")
    hold = "" if "--receive" in options else "while [ ! -e /tmp/end ]; do sleep 0.2; done |"
    role = "listen" if vm is bench.b else "connect"
    return vm.spawn(f"{hold} exec selftest idle --family sdp --{role} {bench.address(bench.b)}:{port} {options}")


def are_open(bench: Bench, *jobs: Job) -> None:
    for job in jobs:
        wait_for(functools.partial(job.says, "open"), bench.limit(30), job)


@test(breaks=True, core=("stock",))
def idle_receiver_notices_that_machine_vanishes(bench: Bench) -> None:
    """SO_KEEPALIVE reports it, with the times of the namespace. A socket without SO_KEEPALIVE goes on waiting."""
    for name, value in (("time", 3), ("intvl", 4), ("probes", 3)):
        bench.a.check(f"echo {value} >/proc/sys/net/sdp/keepalive_{name}")
    before = bench.stats(bench.a)["timed_out"]
    server = idle(bench, bench.b, 7320, "--conns 2")
    asks = idle(bench, bench.a, 7320, "--conns 1 --receive --keepalive")
    waits = idle(bench, bench.a, 7320, "--conns 1 --receive")
    are_open(bench, server, asks, waits)
    wait_for(lambda: bench.stats(bench.a)["keepalive_probe"] > 0, bench.limit(30), "the peer is not asked for")
    expect(not asks.ended.is_set(), f"the peer was there: {asks.output}")
    bench.b.kill()
    status = bench.finish(asks, 60)
    expect(status == 1 and "TimedOut" in asks.output, f"the receive ended with {status}: {asks.output}")
    lost = bench.stats(bench.a)["timed_out"] - before
    expect(lost == 1, f"{lost} connections were lost")
    expect(not waits.ended.is_set(), f"a receive ended that nobody wanted to: {waits.output}")
    bench.a.check("killall -KILL selftest")
    bench.unload(bench.a)
    bench.load(bench.a)


@test(core=("stock",))
def idle_peer_is_asked(bench: Bench) -> None:
    """A peer that answers keeps its connection; its program notices nothing. Accepted sockets inherit the
    listener's options."""
    before = [bench.stats(vm) for vm in bench.vms]
    server = idle(bench, bench.b, 7321, "--conns 3 --keepalive 1,1,2")
    client = idle(bench, bench.a, 7321, "--conns 3 --keepalive 1,1,2")
    are_open(bench, server, client)

    def more(name: str) -> list[int]:
        return [bench.stats(vm)[name] - was[name] for vm, was in zip(bench.vms, before, strict=True)]
    # Long enough that each connection is probed more often than it takes to declare a peer dead.
    wait_for(lambda: min(more("keepalive_probe")) >= 3 * 10, bench.limit(60), f"asked {more('keepalive_probe')} times")
    for vm in bench.vms:
        vm.check("touch /tmp/end")
    for job in (server, client):
        expect("0 of 3 were dead" in bench.succeed(job, 20), job.output)
    expect(more("timed_out") == [0, 0], "a connection was lost")


# Values of SDP_ZCOPY_MODE.
SYNCHRONOUS = 2
ASYNCHRONOUS = 3
SINK = 4


@test(kinds=("stock",))
def nobody_answers_a_connect(bench: Bench) -> None:
    """connect() gives up when TCP would with that number of SYN retries; it succeeds if the peer answers in
    time."""
    connect = f"selftest idle --family sdp --connect {bench.address(bench.b)}:7322"
    with losing(bench, [bench.a], 100, ALL):
        for retries, seconds in ((1, 3), (2, 7)):
            job = bench.a.spawn(f"{connect} --retries {retries}")
            status = bench.finish(job, 60)
            said = present(re.search(r"(\w+), message.* after (\d+) ms", job.output), job.output)
            expect(status == 1 and said[1] == "TimedOut", f"{retries} retries: {status}, {job.output}")
            late = int(said[2]) / 1000 - seconds
            expect(-0.1 < late < 3, f"{retries} retries: {late} s too late")
        server = idle(bench, bench.b, 7322, "--conns 1")
        job = bench.a.spawn(f"{connect} --retries 4")
        time.sleep(2)
        lose(bench.a, 0, ALL)
        bench.succeed(job, 30)
        bench.b.check("touch /tmp/end")
        bench.succeed(server, 20)


CLASS = 0x48


@test(kinds=("stock",))
def packets_have_their_class(bench: Bench) -> None:
    """IP_TOS applies to the packets of both directions."""
    with losing(bench, bench.vms, 0, f"match ip tos {CLASS:#x} 0xfc"):
        for options, has_class in (("", False), (f"--tos {CLASS}", True)):
            before = [of_class(vm) for vm in bench.vms]
            server = idle(bench, bench.b, 7323, "--conns 1")
            client = idle(bench, bench.a, 7323, f"--conns 1 --bytes 30000 {options}")
            are_open(bench, server, client)
            bench.a.check("touch /tmp/end")
            bench.succeed(client, 30)
            bench.b.check("touch /tmp/end")
            # The server does not wait for its peer's end.
            bench.finish(server, 30)
            packets = [of_class(vm) - was for vm, was in zip(bench.vms, before, strict=True)]
            expect(all((n > 0) == has_class for n in packets), f"{options or 'no class'}: {packets} packets")


def of_class(vm: Vm) -> int:
    """The packets that passed the band of lose()."""
    shown = vm.check("tc -s qdisc show dev eth0")
    return int(present(re.search(r"netem 4:.*?Sent \d+ bytes (\d+) pkt", shown, re.DOTALL), shown)[1])


def send_by(bench: Bench, mode: int) -> None:
    """Reloads the module of all machines with this mode and a low threshold."""
    for vm in bench.vms:
        bench.unload(vm)
        vm.check(f"modprobe ib_sdp sdp_zcopy_thresh=16384 sdp_zcopy_mode={mode}")


def nothing_is_left(bench: Bench, vm: Vm) -> None:
    """No advert is outstanding, no memory pinned, no page protected or absent."""
    def left() -> dict[str, int]:
        now = bench.stats(vm)
        return {
            "adverts": outstanding(now),
            "pinned bytes": now["pinned_bytes"] - now["unpinned_bytes"],
            "protected pages": now["snapshot_pages"] - now["snapshot_freed"],
            "pages without access": now["absent_pages"] - now["absent_freed"],
        }
    last: list[dict[str, int]] = []

    def done() -> bool:
        last[:] = [left()]
        return not any(last[0].values())
    try:
        wait_for(done, bench.limit(60), "")
    except Failure:
        bench.show(vm, "resources are left")
        raise Failure(f"{vm.name}: left are {last[0]}") from None


@contextlib.contextmanager
def adverts_out(bench: Bench, port: int) -> Iterator[tuple[Job, Job, Job]]:
    """Two asynchronous streams: one to a reader that has stopped and one to a reader that reads. After the
    block, some adverts must have been aborted unread, and no resource may be left."""
    send_by(bench, ASYNCHRONOUS)
    stalled = stopped_reader(bench, port, overwrites=False)
    server, client = moving(bench, port + 1)
    expect(bench.stats(bench.a)["advert_async"] > 0, "all was copied")
    yield stalled, server, client
    bench.b.run("killall -KILL sdpbench")
    for vm in bench.vms:
        nothing_is_left(bench, vm)
    expect(bench.stats(bench.a)["advert_aborted"] > 0, "all had been read")
    plain_again(bench)


@contextlib.contextmanager
def sinks_out(bench: Bench, port: int) -> Iterator[Job]:
    """A stream to a reader whose buffer the peer writes to. No resource may be left after the block."""
    send_by(bench, SINK)
    client = large_sends(bench, port)
    wait_for(lambda: bench.stats(bench.a)["write_posted"] > 8, bench.limit(20), "nothing is written to a buffer")
    yield client
    for vm in bench.vms:
        vm.run("killall -KILL sdpbench")
    for vm in bench.vms:
        nothing_is_left(bench, vm)
    plain_again(bench)


def plain_again(bench: Bench) -> None:
    for vm in bench.vms:
        bench.unload(vm)
        bench.load(vm)


def end_badly(bench: Bench, seconds: float, *jobs: Job) -> None:
    for job in jobs:
        expect(bench.finish(job, seconds) not in (0, None), f"`{job.command}` ended well")


@test(breaks=True, core=("stock",))
def machine_vanishes_before_it_has_read(bench: Bench) -> None:
    """Memory of sends that have returned is released, and the programs get an error."""
    send_by(bench, ASYNCHRONOUS)
    stalled = stopped_reader(bench, 7317, overwrites=False)
    _, client = moving(bench, 7318)
    expect(bench.stats(bench.a)["advert_async"] > 0, "all was copied")
    bench.b.kill()
    for job in (client, stalled):
        status = bench.finish(job, 240)
        expect(status not in (0, None), f"the stream ended with {status} although the peer is gone")

    nothing_is_left(bench, bench.a)
    expect(bench.stats(bench.a)["advert_aborted"] > 0, "nothing was unread when the machine vanished")
    bench.unload(bench.a)
    bench.load(bench.a)


@test(breaks=True, kinds=("stock",))
def machine_vanishes_before_bytes_have_come(bench: Bench) -> None:
    """Receives have returned before their bytes arrived: a program that touches the bytes gets a signal, and no
    program waits for ever. The debug kernel is too slow: there the bytes arrive before the call returns."""
    with bench.selftest_server():
        lines: list[str] = []
        job = bench.a.spawn(bench.selftest("--times --peer-vanishes", bench.b), lines.append)
        wait_for(lambda: any("the peer may vanish" in line for line in lines) or job.ended.is_set(), 60, "no Read")
        bench.b.kill()
        bench.succeed(job, 120)
    if "# SKIP" in job.output:
        raise Skip(job.output.split("# SKIP", 1)[1].splitlines()[0].strip())
    bench.unload(bench.a)
    bench.load(bench.a)


@test()
def readers_killed_before_they_have_read(bench: Bench) -> None:
    """The readers' kernel ends the connections and the senders' adverts are aborted."""
    with adverts_out(bench, 7319) as (stalled, server, client):
        bench.b.check("killall -KILL sdpbench selftest")
        end_badly(bench, 60, server, client, stalled)


@test()
def senders_killed_before_they_are_read(bench: Bench) -> None:
    """Sent bytes are delivered after the senders have died; the senders' memory is released with the last byte."""
    with adverts_out(bench, 7321) as (stalled, server, client):
        bench.a.check("killall -KILL sdpbench selftest")
        end_badly(bench, 60, stalled, client, server)


@test()
def devices_removed_before_they_have_read(bench: Bench) -> None:
    """First the adapter of the sender, whose memory the peer reads, is removed, then the adapter of the reader."""
    for vm, port in ((bench.a, 7323), (bench.b, 7325)):
        with adverts_out(bench, port) as jobs:
            remove_device(bench, vm)
            end_badly(bench, 240, *jobs)
            add_device(bench, vm)


@test(kinds=("stock",))
def killed_while_written_to(bench: Bench) -> None:
    """First the reader, to whose buffer the peer writes, is killed, then the sender. On the debug kernel hardly
    any Write takes place."""
    for vm, port in ((bench.b, 7327), (bench.a, 7329)):
        with sinks_out(bench, port) as client:
            vm.check("killall -KILL sdpbench")
            end_badly(bench, 60, client)


@test(kinds=("stock",))
def devices_removed_while_written_to(bench: Bench) -> None:
    """First the adapter of the reader is removed, then the adapter of the sender, which writes."""
    for vm, port in ((bench.b, 7331), (bench.a, 7333)):
        with sinks_out(bench, port) as client:
            remove_device(bench, vm)
            end_badly(bench, 240, client)
            add_device(bench, vm)


@test()
def program_killed(bench: Bench) -> None:
    """The peer's kernel closes the sockets of the killed program."""
    server, client = moving(bench, 7302)
    bench.b.check("killall -KILL selftest")
    status = bench.finish(client, 60)
    expect(status != 0, "the stream ended well although the peer was killed")
    server.wait(bench.limit(10))
    transfer_works(bench, 7303)


@test()
def module_unloaded_at_peer(bench: Bench) -> None:
    """The peer kills its programs and unloads the module while this side still sends."""
    server, client = moving(bench, 7304)
    bench.b.check("killall -KILL selftest")
    server.wait(bench.limit(10))
    bench.unload(bench.b)
    status = bench.finish(client, 60)
    expect(status != 0, "the stream ended well although the peer's module is gone")
    bench.load(bench.b)
    transfer_works(bench, 7305)


@test(core=("stock",))
def receiver_never_reads(bench: Bench) -> None:
    """The sender is blocked, with a bounded amount of memory, and continues afterwards."""
    # The same size on a slow kernel: the transfer must not have ended when the receiver is stopped.
    size = 48 << 20
    before = bench.stats(bench.a)["tx_bytes"]
    server = bench.stream(bench.b, "listen", 7306, 1, size)
    client = bench.stream(bench.a, "connect", 7306, 1, size)
    wait_for(lambda: "Established" in bench.b.check("cat /proc/net/sdp"), bench.limit(30), "no connection")
    bench.b.check("killall -STOP selftest")
    stopped = bench.stats(bench.a)["tx_bytes"]

    def is_held_back() -> bool:
        """Bytes have been sent, and none during the last three seconds."""
        first = bench.stats(bench.a)["tx_bytes"]
        time.sleep(3)
        return before + (1 << 16) < first == bench.stats(bench.a)["tx_bytes"]
    wait_for(is_held_back, bench.limit(60), "more and more bytes leave for a receiver that does not read")
    left = bench.stats(bench.a)["tx_bytes"] - stopped
    # The receive buffer, and some bytes in flight.
    expect(left < 8 << 20, f"{left} bytes left for a receiver that does not read")
    expect(not client.ended.is_set(), f"the sender ended:\n{client.output}")
    bench.b.check("killall -CONT selftest")
    bench.succeed(client, 120)
    bench.succeed(server, 60)


@test()
def sender_gone_while_receiver_stopped(bench: Bench) -> None:
    server = bench.stream(bench.b, "listen", 7307, 1, ENDLESS)
    client = bench.stream(bench.a, "connect", 7307, 1, ENDLESS)
    wait_for(lambda: "Established" in bench.b.check("cat /proc/net/sdp"), bench.limit(30), "no connection")
    bench.b.check("killall -STOP selftest")
    bench.a.check("killall -KILL selftest")
    client.wait(bench.limit(10))
    time.sleep(1)
    bench.b.check("killall -CONT selftest")
    expect(bench.finish(server, 60) != 0, "the receiver did not notice that the sender was killed")
    transfer_works(bench, 7308)


def remove_device(bench: Bench, vm: Vm) -> None:
    vm.check("rdma link delete rxe0", bench.limit(60))


def add_device(bench: Bench, vm: Vm) -> None:
    vm.check("rdma link add rxe0 type rxe netdev eth0")
    wait_for(lambda: "state ACTIVE" in vm.run("rdma link").output, bench.limit(20), "rxe0 is not active")


@test(breaks=True)
def device_removed_under_load(bench: Bench) -> None:
    server, client = moving(bench, 7309)
    remove_device(bench, bench.a)
    expect(bench.finish(client, 60) != 0, "the stream ended well although its device is gone")
    expect(bench.finish(server, 240) != 0, "the peer's stream ended well although its peer is gone")
    add_device(bench, bench.a)
    transfer_works(bench, 7310)


@test(breaks=True, core=("stock",))
def lossy_link(bench: Bench) -> None:
    """Loss, delay and reordering slow the stream down and change no byte."""
    # Each loss costs soft-RoCE a time-out of seconds, or it sends a whole window again. A message
    # that fails seven times in a row ends the connection. Therefore no jitter: with jitter hardly
    # any message of eight packets arrives in order.
    size = bench.amount(1 << 20)
    bench.a.check("tc qdisc add dev eth0 root netem delay 2ms loss 0.3% reorder 1%")
    server = bench.stream(bench.b, "listen", 7311, 2, size)
    client = bench.stream(bench.a, "connect", 7311, 2, size)
    bench.succeed(client, 400)
    bench.succeed(server, 60)


# Filters for packets of soft-RoCE: all UDP packets, or only the acknowledgements.
ALL = "match u8 0x11 0xff at 9"
ACKNOWLEDGEMENTS = "match u8 0x11 0xff at 28"


def lose(vm: Vm, percent: int, which: str) -> None:
    """Drops this share of the matching soft-RoCE packets that the machine sends."""
    verb = "change" if "prio" in vm.check("tc qdisc show dev eth0") else "add"
    if verb == "add":
        vm.check("tc qdisc add dev eth0 root handle 1: prio bands 4 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0")
    vm.check(f"tc qdisc {verb} dev eth0 parent 1:4 handle 4: netem loss {percent}%")
    if verb == "add":
        vm.check(f"tc filter add dev eth0 parent 1: protocol ip u32 match ip dport 4791 0xffff {which} flowid 1:4")


@contextlib.contextmanager
def losing(bench: Bench, vms: list[Vm], percent: int, which: str) -> Iterator[None]:
    """lose() for the length of the block."""
    for vm in vms:
        lose(vm, percent, which)
    try:
        yield
    finally:
        for vm in vms:
            # Packets in the queue are lost when the queue is removed.
            bench.settle(vm)
            vm.check("tc qdisc del dev eth0 root")


def lose_acknowledgements(vm: Vm, percent: int) -> None:
    """Drops this share of soft-RoCE acknowledgements that the machine sends. Responses to Reads and messages
    pass.

    Make the first call before data moves: a change of the queueing discipline fails packets in a way that
    soft-RoCE does not survive.
    """
    lose(vm, percent, ACKNOWLEDGEMENTS)


@test(breaks=True, kinds=("stock",))
def acknowledgements_lost(bench: Bench) -> None:
    """Requests that are sent again change no byte, with and without a copy."""
    for mode in (SYNCHRONOUS, ASYNCHRONOUS):
        lose_some(bench, mode)


def retries(vm: Vm) -> int:
    return int(vm.check("cat /sys/class/infiniband/rxe0/ports/1/hw_counters/completer_retry_err"))


def lose_some(bench: Bench, mode: int) -> None:
    before = retries(bench.a)
    for vm in bench.vms:
        bench.unload(vm)
        vm.check(f"modprobe ib_sdp sdp_zcopy_thresh=16384 sdp_zcopy_mode={mode}")
    # Lose acknowledgements from the first message on, so that the loss does not depend on the speed
    # of the machines, and once more later, for the requests that are in flight then.
    lose_acknowledgements(bench.b, 100)
    # One direction only: the sender, which repeats requests, must not read. In soft-RoCE (Linux 7.2
    # and 7.3) an acknowledgement that arrives between two responses to a Read ends the connection,
    # with a warning (testing.rst).
    size = 24 << 20
    server = bench.stream(bench.b, "listen", 7312, 1, size, one_way=True)
    client = bench.stream(bench.a, "connect", 7312, 1, size, one_way=True)
    wait_for(lambda: retries(bench.a) > before, bench.limit(60), "nothing is sent again")
    lose_acknowledgements(bench.b, 0)
    wait_for(lambda: bench.stats(bench.a)["tx_zcopy_bytes"] > 1 << 20 or client.ended.is_set(),
             bench.limit(60), "nothing goes without a copy")
    lose_acknowledgements(bench.b, 100)
    time.sleep(1)
    lose_acknowledgements(bench.b, 0)
    bench.succeed(client, 200)
    bench.succeed(server, 60)
