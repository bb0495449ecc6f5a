# SPDX-License-Identifier: GPL-2.0
"""Faults that only the test adapter can cause: links that go down, failing requests, slow Reads, removal.

The first machine sends. The second machine receives and compares each byte. After each fault no memory is
pinned, no advert is outstanding, no key is valid, the next connection works, and the module can be unloaded.
"""

import collections
import contextlib
import errno
import functools
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

from vmlib import ktap
from vmlib.adapter import Adapter
from vmlib.bench import Bench, Failure, expect, test, wait_for
from vmlib.machine import Vm
from vmlib.schema import Socket
from vmtests import debugfs
from vmtests.peer import ASYNCHRONOUS, SINK, SYNCHRONOUS, nothing_is_left, transfer_works
from vmtests.sdpctl import sockets

over_adapter = functools.partial(test, core=("stock",), adapter="pvrdma")
# The adapter's time-out in tests that do not wait for the module's 17 s.
SOON = "100ms"
# Bytes per send.
CALL = 1 << 18
# More bytes than any test can transfer.
ENDLESS = 1 << 40
# The mode that copies.
COPIES = 1
# Some of the counters that exist per connection.
OWN = ("rx_bytes", "advert_posted", "advert_consumed", "advert_cancelled", "advert_received", "sink_advert_sent")
# Why a test of the suite is skipped on the debug kernel.
NO_ZRAM = "no zram here"
# Ends of held connections close when this file exists.
END = "/tmp/end"


@contextlib.contextmanager
def mishaps(bench: Bench) -> Iterator[Adapter]:
    """Clears the faults that the block has set. Afterwards no resource may be left, and connections must work."""
    try:
        yield bench.adapter
    finally:
        for vm in bench.vms:
            bench.adapter.tell("clear", vm)
    for vm in bench.vms:
        bench.settle(vm, 60)
    for vm in bench.vms:
        nothing_is_left(bench, vm)
        expect(not bench.adapter.open_keys(vm), f"{vm.name}: keys are valid: {bench.adapter.tell('keys', vm)}")
    transfer_works(bench, 7999)
    for vm in bench.vms:
        bench.unload(vm)
        bench.load(vm)


class Cases:
    """Several faults in sequence: all are tried, and the test fails if any case failed."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.failed: list[str] = []

    @contextlib.contextmanager
    def one(self, *name: str) -> Iterator[None]:
        try:
            yield
        except Failure as failure:
            self.failed.append(f"{' '.join(filter(None, name))}: {failure}")
            for vm in self.bench.vms:
                self.bench.adapter.tell("clear", vm)
                vm.run("killall -q -KILL selftest")

    def end(self) -> None:
        expect(not self.failed, "\n".join(self.failed))


class Stream:
    """A stream from the first machine to the second on a connection with its own mode for large sends."""

    def __init__(self, bench: Bench, port: int, mode: int, size: int = 2 << 20, pause: int = 0,
                 hold: bool = False, part: int = CALL) -> None:
        self.bench = bench
        self.port = port
        self.mode = mode
        self.before = {vm: bench.stats(vm) for vm in bench.vms}
        # An end that only waits for bytes probes its peer with keepalive.
        command = (f"exec selftest stream --family sdp --one-way --mode {mode} --bytes {size} "
                   "--keepalive 1,1,2")
        if hold:
            command = f"while [ ! -e {END} ]; do sleep 0.1; done | {command} --hold"
        address = f"{bench.address(bench.b)}:{port}"
        self.jobs = {bench.b: bench.b.spawn(f"{command} --max {part} --listen {address}"),
                     bench.a: bench.a.spawn(f"{command} --max {CALL} --connect {address} --pause {pause}")}

    def shown(self, vm: Vm) -> list[Socket]:
        """What `sdpctl` shows of this connection's socket."""
        end: Literal["local", "peer"] = "local" if vm is self.bench.b else "peer"
        return [shown for shown in sockets(vm) if shown[end]["port"] == self.port and shown["state"] != "Listen"]

    def counted(self, vm: Vm) -> collections.Counter[str]:
        """The counters of a machine's module; for the counters in OWN those of this connection."""
        counted = collections.Counter(self.bench.stats(vm))
        counted.subtract(self.before[vm])
        own = [shown["counters"] for shown in self.shown(vm)]
        counted.update({name: (own[0].get(name, 0) if own else 0) - counted[name] for name in OWN})
        return counted

    def has_moved(self, count: int) -> bool:
        """Whether the receiver has received more than `count` bytes."""
        return self.counted(self.bench.b)["rx_bytes"] > count

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        """Waits for a condition that must become true before the stream ends."""
        def has_come() -> object:
            ended = [job for job in self.jobs.values() if job.ended.is_set()]
            if ended and not condition():
                expect(False, f"it ended before {what}:\n{ended[0].output}")
            return condition()
        wait_for(has_come, self.bench.limit(10), f"it does not come to be {what}")

    def end_well(self) -> None:
        for job in self.jobs.values():
            output = self.bench.succeed(job, 60)
            expect(re.search(r"byte-check: [1-9]\d* bytes, 0 wrong", output), output)

    def end_badly(self, vm: Vm, *errors: int) -> None:
        """The program of that machine ends with one of these errors.

        A receiver that reads bytes of a receive that has returned early gets a signal instead.
        """
        if vm is self.bench.b and self.mode == ASYNCHRONOUS:
            errors += (-signal.SIGSEGV,)
        job = self.jobs[vm]
        status = self.bench.finish(job, 60)
        named = re.search(r"\(os error (\d+)\)", job.output)
        how = 128 - status if status > 128 else int(named[1]) if named else status
        expect(how in errors, f"{vm.name}: it ended with {how}, which is none of {errors}:\n{job.output}")
        expect(not re.search(r"[1-9]\d* wrong", job.output), f"{vm.name}: {job.output}")


def under_way(counted: Mapping[str, int], begun: str, *ended: str) -> int:
    return counted[begun] - sum(counted[name] for name in ended)


def unread(stream: Stream) -> int:
    """Outstanding source adverts of the sender."""
    return under_way(stream.counted(stream.bench.a), "advert_posted", "advert_consumed", "advert_cancelled")


# States of an advert. The resources held for it are in use in each of them.

def posted(stream: Stream) -> bool:
    """The advert is registered, and its message has not reached the peer."""
    return unread(stream) > 0


def being_read(stream: Stream) -> bool:
    return stream.counted(stream.bench.b)["advert_received"] > 0 and unread(stream) > 0


def partly_read(stream: Stream) -> bool:
    """The peer has read a part of the advert."""
    reader = stream.bench.b
    return any(0 < int(debugfs.state(reader, shown["cookie"])[0]["peer_advert_unread"]) < CALL
               for shown in stream.shown(reader))


def read_early(stream: Stream) -> bool:
    """The receive has returned before its bytes have arrived."""
    return under_way(stream.counted(stream.bench.b), "absent_pages", "absent_freed") > 0


def unanswered(stream: Stream) -> bool:
    """The peer has read; its answer has not arrived."""
    return stream.counted(stream.bench.b)["rx_bytes"] >= CALL and unread(stream) > 0


def cancelled(stream: Stream) -> bool:
    """The sender has cancelled its adverts, and the peer still reads."""
    return under_way(stream.counted(stream.bench.a), "cancel_sent", "cancel_answered") > 0


def lent(stream: Stream) -> bool:
    """A sink advert is out, and its message has not reached the peer."""
    return stream.counted(stream.bench.b)["sink_advert_sent"] > 0


def being_written(stream: Stream) -> bool:
    return under_way(stream.counted(stream.bench.a), "write_posted", "write_done") > 0


def unannounced(stream: Stream) -> bool:
    """The sender has written; its message about the Write has not arrived."""
    return stream.counted(stream.bench.a)["write_done"] > 0 and not stream.has_moved(CALL - 1)


def taken_back(stream: Stream) -> bool:
    """The reader has cancelled its sink adverts, and the peer still writes."""
    counted = stream.counted(stream.bench.b)
    return counted["sink_cancel_sent"] > 0 and under_way(counted, "sink_advert_sent", "sink_advert_ended") > 0


# States, each with the mode of its stream.
States: TypeAlias = tuple[tuple[Callable[[Stream], bool], int], ...]


class Row(NamedTuple):
    """How the states of some streams are reached. Machine a sends, machine b receives."""

    # The kinds of requests of a machine that are held from the start.
    held: str
    # Those that are held instead, once bytes are under way.
    then_held: str
    states: States
    # The machine whose program gets a signal, once bytes are under way.
    interrupted: str = ""
    # Bytes per receive.
    part: int = CALL


ROWS = (
    Row("a send", "", ((posted, SYNCHRONOUS), (posted, ASYNCHRONOUS))),
    Row("b read", "", ((being_read, SYNCHRONOUS), (being_read, ASYNCHRONOUS))),
    Row("", "b read", ((read_early, ASYNCHRONOUS),)),
    Row("", "b read", ((partly_read, SYNCHRONOUS), (partly_read, ASYNCHRONOUS)), part=CALL // 4),
    Row("b read", "", ((cancelled, SYNCHRONOUS),), interrupted="a"),
    Row("b read", "b send send-inv", ((unanswered, SYNCHRONOUS), (unanswered, ASYNCHRONOUS), (lent, SINK))),
    Row("a write", "", ((being_written, SINK),)),
    Row("a write", "a send", ((unannounced, SINK),)),
    Row("a write", "", ((taken_back, SINK),), interrupted="b"),
)


def holding(bench: Bench, held: str) -> tuple[Vm, list[str]]:
    """The machine whose requests are held, and their kinds."""
    owner, *kinds = held.split()
    return bench.a if owner == "a" else bench.b, kinds


def hold(bench: Bench, held: str, is_held: bool = True) -> None:
    """Holds requests, or releases them."""
    vm, kinds = holding(bench, held or "a")
    for kind in kinds:
        if is_held:
            bench.adapter.tell("hold", vm, kind)
        else:
            bench.adapter.tell("delay", vm, kind, "0s")


def hold_the_right_read(bench: Bench, held: str, streams: list[Stream], states: States) -> None:
    """Holds Reads until the held Reads are those of the states.

    If the reader does not come in time, a Read is a pull: the reader then waits for bytes that are held.
    """
    for _ in range(30):
        end = time.monotonic() + 1
        while time.monotonic() < end:
            if all(state(stream) for stream, (state, _) in zip(streams, states, strict=True)):
                return
        hold(bench, held, is_held=False)
        hold(bench, held)


@contextlib.contextmanager
def in_states(bench: Bench, port: int, row: Row, size: int | None = None) -> Iterator[list[Stream]]:
    """Streams, one in each of the states of a row. A stream ends only if `size` is given."""
    held, then_held, states, interrupted, part = row
    hold(bench, held)
    # A receive advertises a buffer only if the sender is not ahead of the receiver.
    pause = 100
    if not held:
        # Receives return early only while Reads take longer than it takes to protect their pages, also on a
        # busy host; and a sender must not write to pages that are not read yet.
        pause = 50
        bench.adapter.tell("delay", bench.b, "read", "30ms")
    size = size or ENDLESS

    def has_begun(stream: Stream) -> bool:
        return being_written(stream) if held == "a write" else being_read(stream) or stream.has_moved(8)
    streams = []
    for number, (_, mode) in enumerate(states):
        stream = Stream(bench, port + number, mode, size, pause, part=part)
        streams.append(stream)
        # One after the other: the last one, by Writes, is not held yet, and could end.
        if then_held or interrupted:
            stream.wait_for(functools.partial(has_begun, stream), "under way")
    if interrupted:
        # Both signals end the wait of a call; a program in such a call does not stop.
        (bench.a if interrupted == "a" else bench.b).check("killall -STOP selftest && killall -CONT selftest")
    if then_held:
        hold(bench, then_held)
        hold(bench, held, is_held=False)
    if not held:
        hold_the_right_read(bench, then_held, streams, states)
    for stream, (state, _) in zip(streams, states, strict=True):
        stream.wait_for(functools.partial(state, stream), state.__name__)
    owner, _ = holding(bench, then_held or held)
    wait_for(lambda: len([qp for qp in bench.adapter.counted(owner)["queue_pairs"] if qp["pending"]]) >= len(streams),
             bench.limit(5), "nothing is held of some streams")
    yield streams
    hold(bench, then_held or held, is_held=False)


@over_adapter()
def link_comes_back(bench: Bench) -> None:
    """A link that is down for half a second in each state of an advert delays bytes and changes none."""
    cases = Cases(bench)
    with mishaps(bench) as adapter:
        for number, row in enumerate(ROWS):
            with cases.one(*(state.__name__ for state, _ in row.states)):
                size = (4 if row.held else 64) << 20
                with in_states(bench, 8000 + 10 * number, row, size) as streams:
                    before = lost(adapter)
                    # No request may run out of its eight tries while the host keeps a machine waiting for seconds.
                    cut(bench, "2s")
                    expect(lost(adapter) > before, "nothing was lost with the link")
                    carried = adapter.carried()
                    time.sleep(0.5)
                    expect(adapter.carried() == carried, "bytes pass a link that is down")
                adapter.tell("link", bench.b, "up")
                for stream in streams:
                    stream.end_well()
        cases.end()


@over_adapter()
def link_stays_down(bench: Bench) -> None:
    """A link that stays down in each state of an advert: both ends get an error and their memory is released."""
    cases = Cases(bench)
    with mishaps(bench) as adapter:
        for number, row in enumerate(ROWS):
            with cases.one(*(state.__name__ for state, _ in row.states)):
                with in_states(bench, 8100 + 10 * number, row) as streams:
                    cut(bench, SOON)
                    for stream in streams:
                        stream.end_badly(bench.a, errno.ETIMEDOUT)
                        stream.end_badly(bench.b, errno.ETIMEDOUT)
                    for vm in bench.vms:
                        nothing_is_left(bench, vm)
                adapter.tell("link", bench.b, "up")
        cases.end()


def lost(adapter: Adapter) -> int:
    """Pieces lost in transit."""
    return sum(machine["lost"] for machine in adapter.counters())


def cut(bench: Bench, timeout: str) -> None:
    """Takes the second machine's link down, with a time-out of the adapters."""
    for vm in bench.vms:
        bench.adapter.tell("timeout", vm, timeout)
    bench.adapter.tell("link", bench.b, "down")
    said = bench.b.check("cat /sys/class/infiniband/vmw_pvrdma0/ports/1/state")
    expect("DOWN" in said, f"the port says {said}")


@over_adapter()
def lossy_link(bench: Bench) -> None:
    """Lost packets are sent again: bytes are transferred in each mode, and none is wrong."""
    with mishaps(bench) as adapter:
        before = adapter.counters()
        for vm in bench.vms:
            adapter.tell("timeout", vm, "20ms")
            adapter.tell("lose", vm, 30)
        streams = [Stream(bench, 8200 + mode, mode, pause=20) for mode in (COPIES, SYNCHRONOUS, ASYNCHRONOUS, SINK)]
        for stream in streams:
            stream.end_well()
        for vm, was in zip(bench.vms, before, strict=True):
            now = adapter.counted(vm)
            expect(now["lost"] - was["lost"] > 2, f"{vm.name} has lost {now['lost'] - was['lost']} pieces")
            expect(now["total"]["retries"] > was["total"]["retries"], f"{vm.name} has sent nothing again")


@over_adapter()
def receives_run_out(bench: Bench) -> None:
    """A peer that granted a credit and has no receive posted counts as a peer that reset the connection."""
    with mishaps(bench) as adapter:
        stream = Stream(bench, 8210, COPIES, size=ENDLESS)
        stream.wait_for(functools.partial(stream.has_moved, 1 << 20), "under way")
        adapter.tell("receives", bench.b, "held")
        stream.end_badly(bench.a, errno.ECONNRESET)
        adapter.tell("receives", bench.b, "given")
        stream.end_badly(bench.b, errno.ECONNRESET)


# The machine and the kind of its next request that fails, the status, the mode of the stream, and
# the error that the machine's program gets.
FAILURES = (
    ("a", "send", "local-protection", COPIES, errno.ECONNRESET),
    ("a", "send", "retries-exceeded", COPIES, errno.ETIMEDOUT),
    ("b", "send-inv", "local-protection", SYNCHRONOUS, errno.ECONNRESET),
    ("b", "read", "remote-access", SYNCHRONOUS, errno.EPROTO),
    ("b", "read", "retries-exceeded", SYNCHRONOUS, errno.ETIMEDOUT),
    ("a", "reg", "memory-bind", ASYNCHRONOUS, errno.ECONNRESET),
    ("a", "write", "remote-access", SINK, errno.EPROTO),
    ("b", "inv", "memory-bind", SINK, errno.ECONNRESET),
    ("b", "receive", "local-protection", COPIES, errno.ECONNRESET),
)


@over_adapter()
def requests_fail(bench: Bench) -> None:
    """A request of each kind that the module posts fails once."""
    cases = Cases(bench)
    with mishaps(bench) as adapter:
        for number, (owner, kind, status, mode, error) in enumerate(FAILURES):
            with cases.one(kind, status):
                vm = bench.a if owner == "a" else bench.b
                before = bench.stats(vm)["completion_error"]
                # Keys are invalidated by a request when a reader has advertised a buffer that the
                # peer did not use.
                pause = 50 if mode == SINK and kind != "inv" else 0
                stream = Stream(bench, 8220 + number, mode, size=ENDLESS, pause=pause)
                stream.wait_for(functools.partial(stream.has_moved, 0), "under way")
                adapter.tell("fail", vm, kind, status)
                stream.end_badly(vm, error)
                stream.end_badly(bench.other(vm), errno.ECONNRESET, errno.EPIPE)
                expect(not adapter.tell("faults", vm)["fail"], f"no {kind} has failed")
                expect(bench.stats(vm)["completion_error"] > before, f"{vm.name} has seen no error of a {kind}")
        cases.end()


@over_adapter()
def old_keys_are_dead(bench: Bench) -> None:
    """On connections that are open and idle no key is valid, in particular none that the peer was given."""
    with mishaps(bench) as adapter:
        for number, mode in enumerate((SYNCHRONOUS, ASYNCHRONOUS, SINK)):
            for vm in bench.vms:
                vm.check(f"rm -f {END}")
            kind = "write" if mode == SINK else "read"
            owner, lender = (bench.a, bench.b) if mode == SINK else (bench.b, bench.a)
            adapter.tell("hold", owner, kind)
            stream = Stream(bench, 8240 + number, mode, pause=100 if mode == SINK else 0, hold=True)
            stream.wait_for(functools.partial(adapter.open_keys, lender), "a key that is valid")
            given = adapter.open_keys(lender)
            adapter.tell("release", owner)
            for job in stream.jobs.values():
                wait_for(functools.partial(job.says, "byte-check"), bench.limit(20), job)
            expect(bench.a.check("grep -c Established /proc/net/sdp") == "1", "the connection is not open")
            for vm in bench.vms:
                wait_for(functools.partial(has_no_keys, adapter, vm), bench.limit(5),
                         f"{vm.name}: keys are valid: {adapter.tell('keys', vm)}")
            alive = {key["key"] for key in adapter.tell("keys", lender)}
            expect(not given & alive, f"keys that the peer was given are valid: {given & alive}")
            for vm in bench.vms:
                vm.check(f"touch {END}")
            stream.end_well()


def has_no_keys(adapter: Adapter, vm: Vm) -> bool:
    return not adapter.open_keys(vm)


def device_of(vm: Vm) -> str:
    """The adapter's folder in sysfs."""
    return vm.check("dirname $(grep -l 0x0820 /sys/bus/pci/devices/*/device)")


@over_adapter()
def device_vanishes(bench: Bench) -> None:
    """An adapter is removed under load: programs get an error, memory is released, and a new adapter works."""
    with mishaps(bench) as adapter:
        streams = [Stream(bench, 8250 + mode, mode, size=ENDLESS) for mode in (COPIES, SYNCHRONOUS, ASYNCHRONOUS, SINK)]
        for stream in streams:
            stream.wait_for(functools.partial(stream.has_moved, 4 << 20), "under way")
        folder = device_of(bench.a)
        for vm in bench.vms:
            adapter.tell("timeout", vm, SOON)
        adapter.tell("device", bench.a, "removed")
        # As the kernel's hotplug driver does when a card has been removed.
        bench.a.check(f"echo 1 >{folder}/remove", bench.limit(60))
        for stream in streams:
            # Its requests fail before the kernel learns of the removal.
            stream.end_badly(bench.a, errno.ENETDOWN, errno.ECONNRESET)
            stream.end_badly(bench.b, errno.ETIMEDOUT, errno.ECONNRESET)
        for vm in bench.vms:
            nothing_is_left(bench, vm)
        adapter.tell("device", bench.a, "present")
        bench.a.check("echo 1 >/sys/bus/pci/rescan", bench.limit(60))
        wait_for(lambda: "ACTIVE" in bench.a.run("rdma link show").output.partition("vmw_pvrdma")[2], bench.limit(20),
                 "the new adapter is not active")


@over_adapter()
def stalled_receives(bench: Bench) -> None:
    """The suite's group for bytes that take seconds to arrive, over delayed Reads."""
    left = {"azstall"}
    with mishaps(bench) as adapter, bench.selftest_server():
        # On a busy host two calls rarely return early at the same time: what was skipped is tried once more.
        for _ in range(2):
            left = {found.name for found in stalled(bench, adapter, left)
                    if found.outcome == "skipped" and not (bench.kind == "debug" and NO_ZRAM in found.detail)}
            if not left:
                break
    expect(not left, f"skipped twice: {' '.join(sorted(left))}")


def stalled(bench: Bench, adapter: Adapter, names: set[str]) -> list[ktap.Test]:
    """Runs tests of the suite on the first machine, and delays its Reads when a test asks for it."""
    done = "/tmp/delayed"
    job = bench.a.spawn(bench.selftest(f"--delays {done} {' '.join(sorted(names))}", bench.b))
    heard = 0
    end = time.monotonic() + bench.limit(100)
    while not job.ended.wait(0.02):
        expect(time.monotonic() < end, f"it does not end:\n{job.output}")
        for line in job.lines[heard:]:
            heard += 1
            if asked := re.fullmatch(r"# delay Reads by (\d+ms)", line):
                adapter.tell("delay", bench.a, "read", asked[1])
                bench.a.check(f"touch {done}")
    bench.succeed(job, 1)
    reader = ktap.Reader()
    return [found for line in job.lines for found in reader.feed(line)] + reader.end()
