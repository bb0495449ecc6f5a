# SPDX-License-Identifier: GPL-2.0
"""sdpctl conn on live connections."""

from vmlib.bench import expect, test, wait_for
from vmtests.sdpctl import BYTES, Connections, ask, sockets
from vmtests.settings import unloaded


@test(machines=1)
def conn(bench):
    """One connection by each of its numbers, with all that the test knows of it."""
    vm = bench.a
    with Connections(bench, 7801, 2):
        wait_for(lambda: sum(s["recv_queue"] for s in sockets(vm, "--sport 7801")) == 2 * BYTES, bench.limit(20),
                 "not all has come")
        known = sockets(vm, "-p --sport 7801")[0]
        for number in (known["inode"], known["cookie"]):
            found = ask(vm, f"conn {number}")["connections"]
            expect(len(found) == 1 and found[0]["socket"] == known, f"{number}: {found}\n{known}")
            expect(found[0]["others"] == [], found)
        by_port = ask(vm, "conn 7801")["connections"]
        expect(len(by_port) == 2, by_port)
        text = vm.check(f"sdpctl conn {known['cookie']}")
        for words in ("Established", f"{BYTES} bytes not read", f"inode {known['inode']}", f"rx_bytes {BYTES}",
                      "selftest (pid "):
            expect(words in text, f"no `{words}` in\n{text}")
        expect("\x1b" not in text, "colours without a terminal")
        missing = vm.run("sdpctl conn 999999999 2>&1")
        expect(missing.rc == 1 and "no socket has 999999999" in missing.output, missing.output)
    with unloaded(bench):
        expect(vm.run("sdpctl conn 1").rc == 3, "without the module")
