# SPDX-License-Identifier: GPL-2.0
"""sdpctl top on a terminal (tmux): the screen and the keys."""

import re
from collections.abc import Collection
from typing import Self

from vmlib.bench import Bench, Failure, expect, test, wait_for
from vmtests.sdpctl import Connections, sockets
from vmtests.settings import unloaded

PROMPT = "ready>"


class Tmux:
    """A terminal with a shell in a machine."""

    def __init__(self, bench: Bench, columns: int = 150, rows: int = 30) -> None:
        self.bench = bench
        self.tmux("-f /dev/null new-session -d -s top "
                  f"-x {columns} -y {rows} \"env PS1='{PROMPT} ' busybox sh\"")
        self.see(PROMPT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.bench.a.run("tmux kill-server")

    def tmux(self, arguments: str) -> str:
        return self.bench.a.check(f"LC_ALL=C.UTF-8 tmux {arguments}")

    def keys(self, *keys: str) -> None:
        """Presses keys: tmux key names, or text."""
        self.tmux("send-keys -t top " + " ".join(f"'{key}'" for key in keys))

    def enter(self, command: str) -> None:
        """Runs a command in the shell."""
        self.keys(command, "Enter")

    def resize(self, columns: int, rows: int) -> None:
        self.tmux(f"resize-window -t top -x {columns} -y {rows}")

    def lines(self) -> list[str]:
        """The lines of the screen."""
        return self.tmux("capture-pane -p -t top").rstrip("\n").splitlines()

    def see(self, *texts: str, without: Collection[str] = ()) -> list[str]:
        """Waits until the screen shows `texts` and no text of `without`; returns its lines."""
        seen: list[str] = []

        def shown() -> bool:
            seen[:] = self.lines()
            whole = "\n".join(seen)
            return all(text in whole for text in texts) and not any(text in whole for text in without)
        try:
            wait_for(shown, self.bench.limit(20), "")
        except Failure:
            raise Failure(f"the screen shows not {texts} without {without}, but:\n" + "\n".join(seen)) from None
        return list(seen)


@test(machines=1, core=("stock",))
def top(bench: Bench) -> None:
    """Connections, keys, resizing, suspending and quitting. Afterwards the screen is restored."""
    vm = bench.a
    with Connections(bench, 7802, 2), Tmux(bench) as terminal:
        terminal.enter("echo what was there")
        terminal.enter("stty -a >/tmp/1")
        terminal.enter("sdpctl top -i 0.5")
        shown = terminal.see("4 connections", "sorted by sent", without=["what was there"])
        rows = [line.split() for line in shown if ":7802" in line]
        expect(len(rows) == 4 and all(row[0] == "Established" for row in rows), "\n".join(shown))
        expect(shown[2].split()[:4] == ["State", "Mode", "Sent", "Received"], "\n".join(shown))
        for key, order in (("m", "memory"), ("a", "address"), ("r", "received"), ("t", "sent"), ("x", "sent")):
            terminal.keys(key)
            terminal.see(f"sorted by {order}", "4 connections")
        terminal.keys("a")
        terminal.see("sorted by address")
        rows = [line.split()[7:] for line in terminal.lines() if "Established" in line]
        expect(len(rows) == 4 and rows == sorted(rows), rows)
        # No line is longer than the window, and no line that fits is missing.
        terminal.resize(60, 5)
        wait_for(lambda: len(terminal.lines()) == 5 and sum("Established" in line for line in terminal.lines()) == 2,
                 bench.limit(20), "five lines, two of them connections")
        terminal.resize(150, 30)
        wait_for(lambda: sum(":7802" in line for line in terminal.lines()) == 4, bench.limit(20), "all four again")
        # Suspending restores the shell's screen; resuming shows the view again.
        terminal.keys("C-z")
        terminal.see("what was there", without=["4 connections"])
        expect(vm.check("ps -o stat,args | grep 'sdpctl top' | grep -v grep").startswith("T"), "it has not stopped")
        terminal.enter("fg")
        terminal.see("4 connections", "sorted by address", without=["what was there"])
        terminal.keys("q")
        terminal.see("what was there", without=["4 connections"])
        terminal.enter("echo ended with $?; stty -a >/tmp/2")
        terminal.see("ended with 0")
        wait_for(lambda: vm.run("cmp /tmp/1 /tmp/2").ok, bench.limit(20), "the terminal's settings have changed")


@test(machines=1, core=("stock",))
def top_ends(bench: Bench) -> None:
    """After a number of refreshes, Ctrl-C or a signal the terminal is restored. Without a terminal an error is
    printed."""
    vm = bench.a
    with Tmux(bench) as terminal:
        for n, (arguments, end) in enumerate((("-c 2", None), ("-i 9", "key"), ("-i 9", "TERM"), ("-i 9", "HUP"))):
            terminal.enter(f"clear; stty -a >/tmp/1; sdpctl top {arguments}; echo end {n} $?; stty -a >/tmp/2")
            if end:
                terminal.see("q quit")
            if end == "key":
                terminal.keys("C-c")
            elif end:
                vm.check(f"killall -{end} sdpctl")
            terminal.see(f"end {n} 0", without=["q quit"])
            wait_for(lambda: vm.run("cmp /tmp/1 /tmp/2").ok, bench.limit(20), f"settings have changed by {end}")
    refused = vm.run("sdpctl top 2>&1")
    expect(refused.rc == 1 and "needs a terminal" in refused.output, f"{refused.rc} {refused.output}")
    expect(vm.run("sdpctl --json top").rc == 2, "JSON of a live view")
    with unloaded(bench):
        expect(vm.run("sdpctl top").rc == 3, "without the module")


@test(machines=1, core=("stock",))
def top_shows_rates(bench: Bench) -> None:
    """The rate of a connection between two refreshes, and the total."""
    vm, address = bench.a, bench.address(bench.a)
    server = vm.spawn(f"exec sdpbench --family sdp {address}:7803 serve")
    wait_for(lambda: server.lines, bench.limit(20), "sdpbench's server says nothing")
    # Longer than the test takes.
    client = vm.spawn(f"exec sdpbench --family sdp {address}:7803 bw 65536 --seconds 1000")
    try:
        wait_for(lambda: sockets(vm, "--state established --dport 7803"), bench.limit(20), "no connection")
        with Tmux(bench) as terminal:
            terminal.enter("sdpctl top -i 1 --sort sent")

            def flows() -> object:
                """The sending connection is first; it and the namespace have a rate."""
                shown = terminal.lines() or [""]
                rows = [line.split() for line in shown if "Established" in line]
                total = re.search(r"sent (\S+)", shown[0])
                return (rows and rows[0][2] not in ("0/s", "-") and rows[0][-1] == f"{address}:7803"
                        and total and total[1] != "0/s")
            wait_for(flows, bench.limit(20), "no rates")
    finally:
        client.kill()
        server.kill()
