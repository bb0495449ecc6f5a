# SPDX-License-Identifier: GPL-2.0
"""The process that provides the machines' adapters (tools/adapter), via its control socket."""

import json
import socket
from typing import Protocol, TypedDict

from .machine import VmError
from .schema import Json


class Machine(Protocol):
    """A `Vm`, of which only the number is used here."""

    ident: int


class Counters(TypedDict):
    """The operations of queue pairs."""

    bytes: int
    sends: int
    receives: int
    errors: int
    rnr: int
    retries: int


class QueuePair(Counters):
    """An existing queue pair."""

    number: int
    state: str
    pending: int


class Counted(TypedDict):
    """The operations of a machine's adapter (MachineReport of tools/adapter)."""

    active: bool
    link_up: bool
    lost: int
    doorbells: int
    interrupts: int
    keys: int
    completion_queues: int
    error: int
    complaints: dict[str, int]
    total: Counters
    queue_pairs: list[QueuePair]


class Adapter:
    """Queries and controls the process. Machines are given by their `Vm`."""

    def __init__(self, folder: str) -> None:
        self.path = f"{folder}/control"
        self.log = f"{folder}/adapter.log"

    def ask(self, *words: str | int) -> Json:
        """Executes a command; returns the answer of the process."""
        line = " ".join(str(word) for word in words)
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(self.path)
            with peer.makefile("rw", encoding="utf-8") as stream:
                print(line, file=stream, flush=True)
                answer = json.loads(stream.readline())
        if "error" in answer:
            raise VmError(f"the adapter refuses `{line}`: {answer['error']}")
        return answer

    def tell(self, command: str, vm: Machine, *words: str | int) -> Json:
        """Executes a command about a machine."""
        return self.ask(command, vm.ident, *words)

    def counters(self) -> list[Counted]:
        """The operations of the adapters of all machines, in the machines' order."""
        machines: list[Counted] = self.ask("counters")["machines"]
        return machines

    def counted(self, vm: Machine) -> Counted:
        """The operations of a machine's adapter."""
        return self.counters()[vm.ident - 1]

    def said(self, vm: Machine) -> list[str]:
        """The lines of the log about a machine: values of the machine that its adapter has refused."""
        about = f"adapter: machine {vm.ident}: "
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return [line.removeprefix(about).rstrip("\n") for line in log if line.startswith(about)]

    def carried(self) -> int:
        """The number of bytes that all adapters have copied."""
        return sum(machine["total"]["bytes"] for machine in self.counters())

    def open_keys(self, vm: Machine) -> set[int]:
        """The keys by which peers can access the machine's memory."""
        keys = self.tell("keys", vm)
        return {key["key"] for key in keys if key["peers_read"] or key["peers_write"]}
