# SPDX-License-Identifier: GPL-2.0
"""The process that is the machines' adapters (tools/adapter), by its control socket."""

import json
import socket

from .machine import VmError


class Adapter:
    """Asks and tells the process. Machines are named by their `Vm`."""

    def __init__(self, folder):
        self.path = f"{folder}/control"

    def ask(self, *words):
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

    def tell(self, command, vm, *words):
        """Does a command about a machine."""
        return self.ask(command, vm.ident, *words)

    def counters(self):
        """What the adapters of all machines have done, the first machine's first."""
        return self.ask("counters")["machines"]

    def counted(self, vm):
        """What the adapter of a machine has done."""
        return self.counters()[vm.ident - 1]

    def carried(self):
        """Bytes that all adapters have copied."""
        return sum(machine["total"]["bytes"] for machine in self.counters())

    def open_keys(self, vm):
        """The keys by which peers can reach the machine's memory."""
        keys = self.tell("keys", vm)
        return {key["key"] for key in keys if key["peers_read"] or key["peers_write"]}
