# SPDX-License-Identifier: GPL-2.0
"""A virtual machine under QEMU and the commands that run in it."""

import contextlib
import itertools
import json
import os
import queue
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

from .tsc import tsc_khz

# All features that TCG can emulate, but no fast string copies: TCG runs `rep movsb` a byte at a
# time, and a kernel that sees erms or fsrm copies with it. Measured between two machines (qperf at
# 64 KiB, MB/s): max tcp_bw 56, rc_bw 30; without erms and fsrm 77 and 39; qemu64, Nehalem and
# Haswell, which lack features that TCG emulates well, 41 to 55 and 24 to 27. Leaving out SMAP as
# well had no effect. With fsrs, memset() is `rep stosb`: the rates are the same, but each byte counts as
# an instruction (41% of those of a sender over soft-RoCE).
CPU = os.environ.get("IB_SDP_CPU", "max,-erms,-fsrm,-fsrs")

# A plugin that counts instructions (see profile.py).
PROFILE = os.path.join(os.environ.get("IB_SDP_CACHE", ""), "target/release/libprofile.so")

# Seconds. An emulated kernel with KASAN may need a minute to boot on a busy host.
BOOT_LIMIT = {"stock": 120, "debug": 300}
DEFAULT_LIMIT = {"stock": 120, "debug": 600}


class VmError(Exception):
    """The machine failed: it did not boot, or has ended."""


def processor_seconds(process: subprocess.Popen[bytes] | None) -> float:
    """The processor time that a process has used in seconds; 0 if it has ended."""
    if process is None:
        return 0
    try:
        with open(f"/proc/{process.pid}/stat", encoding="ascii") as file:
            user, system = file.read().rpartition(")")[2].split()[11:13]
    except OSError:
        return 0
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def threads(process: subprocess.Popen[bytes]) -> Iterator[tuple[int, str]]:
    """The number and the name of each thread of a running process."""
    folder = f"/proc/{process.pid}/task"
    for thread in os.listdir(folder):
        # Threads may end meanwhile.
        with (contextlib.suppress(FileNotFoundError, ProcessLookupError),
              open(f"{folder}/{thread}/comm", encoding="utf-8") as comm):
            yield int(thread), comm.read().rstrip("\n")


class Job:
    """A command in the guest: its lines as they come, then its exit status."""

    def __init__(self, vm: "Vm", ident: int, command: str) -> None:
        self.vm = vm
        self.ident = ident
        self.command = command
        self.lines: list[str] = []
        self.status: int | None = None
        self.ended = threading.Event()
        self.on_line: Callable[[str], object] | None = None

    def wait(self, timeout: float | None = None) -> int | None:
        """The exit status; None if it did not end within `timeout` seconds."""
        self.ended.wait(timeout)
        return self.status

    def kill(self) -> None:
        self.vm.send(f"K {self.ident}\n")

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def __str__(self) -> str:
        return f"`{self.command}` has said:\n{self.output}"

    def says(self, text: str) -> bool:
        """Whether any line so far contains the text."""
        return any(text in line for line in self.lines)


class Result:
    """The result of a finished command: rc (None: it exceeded its time) and output."""

    def __init__(self, rc: int | None, output: str) -> None:
        self.rc = rc
        self.output = output

    @property
    def ok(self) -> bool:
        return self.rc == 0


class Vm:
    """One machine. `ident` is its number (1, 2): 10.27.0.<ident>, fd27::<ident>.

    With `adapter` "pvrdma" it has a second network card with the adapter of tools/adapter:
    10.27.1.<ident>, fd27:1::<ident>. `disk` is the image of a disk that it may read.
    """

    def __init__(self, kind: str, image: str, initrd: str, folder: str, ident: int = 1, cpus: int = 1,
                 memory_mib: int = 1024, cpu: str = CPU, extra_append: str = "", by_instructions: bool = False,
                 adapter: str = "rxe", disk: str | None = None, switched: bool = False,
                 processor: int | None = None) -> None:
        self.kind = kind
        self.adapter = adapter
        self.memory_mib = memory_mib
        # The processor of the host for the machine and for the thread that serves its adapter; None: any.
        self.processor = processor
        # Whether a guest continues after a write to a register of the adapter without an answer of the process.
        self.posts_writes = False
        self.has_disk = disk is not None
        # A clock that counts instructions has another frequency, which is measured well.
        if not by_instructions:
            extra_append += f" tsc_early_khz={tsc_khz()}"
        if adapter == "pvrdma":
            # A test writes to the device without the driver's knowledge.
            extra_append += " iomem=relaxed"
        # The third number of the addresses that tests use, and the network card that has these
        # addresses.
        network, self.interface = (1, "eth1") if adapter == "pvrdma" else (0, "eth0")
        self.address = f"10.27.{network}.{ident}"
        self.address6 = f"fd27:{network}::{ident}" if network else f"fd27::{ident}"
        # Whether the second network card's frames go to the adapter's process, which serves any number of
        # machines; otherwise they go to the other one of two machines.
        self.switched = switched
        # The device on eth0.
        soft_device = "rxe" if adapter == "pvrdma" else adapter
        self.ident = ident
        self.folder = folder
        self.name = f"vm{ident}"
        self.console = os.path.join(folder, f"{self.name}.log")
        self.agent_path = os.path.join(folder, f"{self.name}.agent")
        self.profile_path = os.path.join(folder, f"{self.name}.profile")
        self.default_limit = DEFAULT_LIMIT[kind]
        self.jobs: dict[int, Job] = {}
        self.numbers = itertools.count(1)
        self.process: subprocess.Popen[bytes] | None = None
        # The process of its adapter, which serves all machines of a link.
        self.served_by: subprocess.Popen[bytes] | None = None
        # The connection to the agent, made by start().
        self.channel: socket.socket
        self.hello: queue.Queue[str] = queue.Queue()
        self.gone = threading.Event()
        self.lock = threading.Lock()
        # Packets to a machine that does not exist are lost, and block nothing.
        netdev = (f"dgram,id=n0,local.type=unix,local.path={folder}/link{ident},"
                  f"remote.type=unix,remote.path={folder}/link{3 - ident}")
        self.arguments = [
            *(["taskset", "--cpu-list", str(processor)] if processor is not None else []),
            "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none",
            "-no-reboot", "-machine",
            "q35,hpet=off,vmport=off,smbus=off" + (",memory-backend=ram0" if adapter == "pvrdma" else ""), "-accel",
            # A clock that counts instructions works with one processor only.
            *(["tcg,thread=single", "-icount", "shift=0,align=off,sleep=on"] if by_instructions
              else ["tcg,thread=multi"]),
            "-cpu", cpu, "-smp", str(cpus), "-m", f"{memory_mib}M",
            "-kernel", image, "-initrd", initrd,
            # The kernel panics if its first timer brings no interrupt in time, as on a busy host.
            "-append", ("console=ttyS0 loglevel=7 panic=-1 mitigations=off random.trust_cpu=on "
                        f"no_timer_check net.ifnames=0 VM_ID={ident} VM_RDMA={soft_device} {extra_append}"),
            "-chardev", f"file,id=console,path={self.console}", "-serial", "chardev:console",
            "-chardev", f"socket,id=agent,path={self.agent_path},server=on,wait=off",
            "-serial", "chardev:agent",
            "-netdev", netdev,
            # Without merged buffers, virtio_net makes no page pool: soft-RoCE frees packets with
            # interrupts off (rxe_receiver of a queue pair in error), which a page pool does not
            # allow, and lockdep stops checking after it has reported this.
            "-device", (f"virtio-net-pci,netdev=n0,romfile=,mac=52:54:00:27:00:0{ident},host_mtu=9000,"
                        "mrg_rxbuf=off"),
            *(["-plugin", f"{PROFILE},socket={self.profile_path}"] if by_instructions else []),
            # Machines of several lanes read it.
            *(["-drive", f"if=none,id=disk,file={disk},format=raw,readonly=on,file.locking=off",
               "-device", "virtio-blk-pci,drive=disk"] if disk else []),
        ]

    def adapter_socket(self) -> str:
        """The machine's socket of the adapter's process (tools/adapter)."""
        return os.path.join(self.folder, f"adapter{self.ident}")

    def second_network(self) -> tuple[str, str]:
        """The sockets at which the second network card's frames arrive: this machine's, and the other end's."""
        other = f"switch{self.ident}" if self.switched else f"second{3 - self.ident}"
        return os.path.join(self.folder, f"second{self.ident}"), os.path.join(self.folder, other)

    def _adapter_arguments(self) -> list[str]:
        """A second network card, and the adapter in the same slot. The adapter's process copies from one
        machine's memory to another's, so the memory is a file that QEMU can pass to it."""
        device = {"driver": "vfio-user-pci", "addr": "05.1", "x-no-posted-writes": not self.posts_writes,
                  "socket": {"type": "unix", "path": self.adapter_socket()}}
        here, there = self.second_network()
        return [
            "-object", f"memory-backend-memfd,id=ram0,size={self.memory_mib}M,share=on",
            "-netdev", f"dgram,id=n1,local.type=unix,local.path={here},remote.type=unix,remote.path={there}",
            "-device", f"vmxnet3,netdev=n1,addr=05.0,multifunction=on,romfile=,mac=52:54:00:27:01:0{self.ident}",
            "-device", json.dumps(device),
        ]

    def served_at_once(self, process: subprocess.Popen[bytes]) -> None:
        """The machine's adapter is served by this process, which has a thread for it.

        The driver requires that the adapter has handled a write (of the address of the shared region) before the
        guest executes its next instruction. So QEMU waits for an answer after each write, which takes several
        switches between threads. If the machine has a processor of the host, the thread gets the same one, and
        precedence over all threads of the machine. Then the host runs it when QEMU has sent a write, and QEMU
        continues when it has handled the write; no answer is needed.
        """
        self.served_by = process
        if self.processor is None:
            return
        thread = next(thread for thread, name in threads(process) if name == f"machine {self.ident}")
        os.sched_setaffinity(thread, {self.processor})
        # Only root may do this.
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(1))
            self.posts_writes = True

    def start(self) -> None:
        """Starts QEMU and returns at once; wait_ready() waits for the guest."""
        with open(os.path.join(self.folder, f"{self.name}.qemu"), "wb") as err:
            arguments = [*self.arguments, *(self._adapter_arguments() if self.adapter == "pvrdma" else [])]
            self.process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL,
                                            stdout=err, stderr=err)
        end = time.monotonic() + 30
        while True:
            self.channel = socket.socket(socket.AF_UNIX)
            try:
                self.channel.connect(self.agent_path)
                break
            except OSError:
                self.channel.close()
                if self.process.poll() is not None or time.monotonic() > end:
                    raise VmError(f"{self.name}: QEMU did not start: {self._qemu_says()}") from None
                time.sleep(0.05)
        threading.Thread(target=self._read, daemon=True).start()

    def wait_ready(self, timeout: float | None = None) -> None:
        """Waits until the guest has its RDMA devices up and answers."""
        timeout = timeout or BOOT_LIMIT[self.kind]
        end = time.monotonic() + timeout
        while True:
            try:
                state = self.hello.get(timeout=0.5)
                break
            except queue.Empty:
                if self.gone.is_set():
                    raise VmError(f"{self.name} ended while booting; log: {self.console}") from None
                if time.monotonic() > end:
                    raise VmError(f"{self.name} did not boot in {timeout} s; log: {self.console}") from None
        if state != "ready":
            raise VmError(f"{self.name} has no RDMA device; log: {self.console}")

    def spawn(self, command: str, on_line: Callable[[str], object] | None = None) -> Job:
        """Starts a command in the guest and returns its Job."""
        job = Job(self, next(self.numbers), command)
        job.on_line = on_line
        self.jobs[job.ident] = job
        if self.gone.is_set():
            job.lines.append("(the machine is gone)")
            job.ended.set()
            return job
        self.send(f"R {job.ident} {json.dumps(command)}\n")
        return job

    def run(self, command: str, timeout: float | None = None,
            on_line: Callable[[str], object] | None = None) -> Result:
        """Runs a command in the guest and returns its Result."""
        job = self.spawn(command, on_line)
        status = job.wait(timeout or self.default_limit)
        if status is None and not self.gone.is_set():
            job.kill()
            # A killed command's last lines may still be on their way.
            job.wait(10)
            return Result(None, job.output + f"\n(no end after {timeout or self.default_limit} s)")
        return Result(status, job.output)

    def check(self, command: str, timeout: float | None = None) -> str:
        """Runs a command that must succeed and returns its output."""
        result = self.run(command, timeout)
        if not result.ok:
            raise VmError(f"{self.name}: `{command}` ended with {result.rc}: {result.output}")
        return result.output

    def send(self, text: str) -> None:
        with self.lock:
            try:
                self.channel.sendall(text.encode())
            except OSError:
                self.gone.set()

    def kill(self) -> None:
        """Ends the machine at once, as if its power was cut."""
        if self.process and self.process.poll() is None:
            self.process.kill()
        if self.process:
            self.process.wait()
        self.gone.set()

    close = kill

    def processor_seconds(self) -> float:
        """The processor time of the host that the machine has used in seconds, the first one with the process of the
        adapters; 0 if it has ended."""
        return processor_seconds(self.process) + (processor_seconds(self.served_by) if self.ident == 1 else 0)

    def guest_seconds(self) -> float:
        """The time that the host has spent to run the machine's processors, in seconds, without the devices that
        other threads emulate. A processor that waits does not run: it is idle, or a register's read or write waits
        for the adapter's process. (The kernel of the machine does not know its idle time: since 7.3, /proc/stat
        counts an interrupt that arrives while the processor is idle, and the softirq after it, as idle time, unless
        the kernel has CONFIG_IRQ_TIME_ACCOUNTING.)"""
        if self.process is None:
            return 0
        seconds = []
        for thread, name in threads(self.process):
            if re.fullmatch(r"(CPU \d+|ALL CPUs)/TCG", name):
                with open(f"/proc/{self.process.pid}/task/{thread}/schedstat", encoding="ascii") as schedstat:
                    seconds.append(int(schedstat.read().split()[0]) / 1e9)
        if not seconds:
            raise VmError(f"{self.name}: QEMU has no thread for a processor")
        return sum(seconds)

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def whole_log(self) -> str:
        """The kernel's console with all messages until now: the console may lag behind the results of commands."""
        mark = f"vmtest: so far {next(self.numbers)}"
        limit = self.default_limit / 4
        end = time.monotonic() + limit
        if self.run(f"echo '{mark}' >/dev/kmsg", limit).ok:
            while mark not in self.log() and not self.gone.is_set() and time.monotonic() < end:
                time.sleep(0.2)
        return self.log()

    def log(self) -> str:
        """The kernel's console so far, as text."""
        try:
            with open(self.console, "rb") as file:
                return file.read().decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "")
        except FileNotFoundError:
            return ""

    def _qemu_says(self) -> str:
        with open(os.path.join(self.folder, f"{self.name}.qemu"), errors="replace") as file:
            return file.read().strip()

    def _read(self) -> None:
        rest = b""
        while True:
            try:
                data = self.channel.recv(65536)
            except OSError:
                data = b""
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._line(line.decode("utf-8", "replace").rstrip("\r"))
        self.gone.set()
        for job in list(self.jobs.values()):
            job.ended.set()

    def _line(self, line: str) -> None:
        verb, _, rest = line.partition(" ")
        if verb == "H":
            self.hello.put(rest)
            return
        ident, _, text = rest.partition(" ")
        job = self.jobs.get(int(ident)) if ident.isdigit() else None
        if job is None:
            return
        if verb == "O":
            job.lines.append(text)
            if job.on_line:
                job.on_line(text)
        elif verb == "E":
            job.status = int(text) if text.strip().isdigit() else 255
            job.ended.set()
