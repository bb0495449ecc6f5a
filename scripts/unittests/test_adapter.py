# SPDX-License-Identifier: GPL-2.0
"""Commands that tests send to the adapter's process, and its answers."""

import json
import os
import socket
import tempfile
import threading
import types
import unittest

from vmlib.adapter import Adapter
from vmlib.machine import VmError
from vmlib.schema import Json

SECOND = types.SimpleNamespace(ident=2)


class Asking(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.adapter = Adapter(folder.name)
        self.listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(self.listener.close)
        self.listener.bind(os.path.join(folder.name, "control"))
        self.listener.listen()
        self.asked: list[str] = []

    def answers(self, *answers: Json) -> None:
        """The process gives these answers, one per command."""
        def serve() -> None:
            for answer in answers:
                peer, _ = self.listener.accept()
                with peer, peer.makefile("rw", encoding="utf-8") as stream:
                    self.asked.append(stream.readline())
                    print(json.dumps(answer), file=stream, flush=True)
        thread = threading.Thread(target=serve)
        thread.start()
        self.addCleanup(thread.join)

    def test_a_command_is_a_line(self) -> None:
        self.answers({}, {})
        self.adapter.tell("lose", SECOND, 30)
        self.adapter.ask("clear", 1)
        self.assertEqual(self.asked, ["lose 2 30\n", "clear 1\n"])

    def test_an_error_is_one(self) -> None:
        self.answers({"error": "there are machines 1 to 2, and no 9"})
        with self.assertRaisesRegex(VmError, "`link 9 up`: there are machines"):
            self.adapter.ask("link", 9, "up")

    def test_counters_and_keys(self) -> None:
        machines = [{"total": {"bytes": 3}}, {"total": {"bytes": 4}}]
        key = {"key": 257, "kind": "all", "bytes": None, "peers_read": False, "peers_write": False}
        self.answers({"machines": machines}, {"machines": machines}, [key, {**key, "key": 300, "peers_write": True}])
        self.assertEqual(self.adapter.carried(), 7)
        self.assertEqual(self.adapter.counted(SECOND), machines[1])
        self.assertEqual(self.adapter.open_keys(SECOND), {300})


if __name__ == "__main__":
    unittest.main()
