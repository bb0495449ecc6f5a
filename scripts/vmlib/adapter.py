# SPDX-License-Identifier: GPL-2.0
"""The process that is the machines' adapters (tools/adapter), by its control socket."""

import json
import socket
from typing import Protocol, TypedDict

from .machine import VmError
from .schema import Json


class Machine(Protocol):
    """A `Vm`, of which no more than its number is used here."""

    ident: int


class Counters(TypedDict):
    """What queue pairs have done."""

    bytes: int
    sends: int
    receives: int
    errors: int
    rnr: int
    retries: int


class QueuePair(Counters):
    """A queue pair that is there."""

    number: int
    state: str
    pending: int


class Counted(TypedDict):
    """What a machine's adapter has done (MachineReport of tools/adapter)."""

    active: bool
    link_up: bool
    lost: int
    doorbells: int
    interrupts: int
    keys: int
    completion_queues: int
    total: Counters
    queue_pairs: list[QueuePair]


class Adapter:
    """Asks and tells the process. Machines are named by their `Vm`."""

    def __init__(self, folder: str) -> None:
        self.path = f"{folder}/control"

    def ask(self, *words: str | int) -> Json:
        """Does a command; returns what the process answers."""
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
        """Does a command about a machine."""
        return self.ask(command, vm.ident, *words)

    def counters(self) -> list[Counted]:
        """What the adapters of all machines have done, the first machine's first."""
        machines: list[Counted] = self.ask("counters")["machines"]
        return machines

    def counted(self, vm: Machine) -> Counted:
        """What the adapter of a machine has done."""
        return self.counters()[vm.ident - 1]

    def carried(self) -> int:
        """Bytes that all adapters have copied."""
        return sum(machine["total"]["bytes"] for machine in self.counters())

    def open_keys(self, vm: Machine) -> set[int]:
        """The keys by which peers can reach the machine's memory."""
        keys = self.tell("keys", vm)
        return {key["key"] for key in keys if key["peers_read"] or key["peers_write"]}
