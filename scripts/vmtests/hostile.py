# SPDX-License-Identifier: GPL-2.0
"""A peer that breaks the rules, with raw verbs: `hostile` of tools/.

Its victims are sockets of the same machine, whose counters it reads.
"""

from vmlib import ktap
from vmlib.bench import expect, test


def attack(bench, group):
    """All attacks of a group; the failure names those that the module did not stand."""
    scale = "--timeout-scale 8 --every 8" if bench.kind == "debug" else ""
    job = bench.a.spawn(f"exec hostile --local {bench.address(bench.a)} {scale} {group}.")
    status = bench.finish(job, 400)
    reader = ktap.Reader()
    results = [found for line in job.lines for found in reader.feed(line)] + reader.end()
    failed = [f"{found.name}: {' '.join(found.detail)}" for found in results if found.outcome == "failed"]
    expect(not failed, "\n".join(failed))
    expect(results and status == 0, f"hostile ended with {status}:\n{job.output}")


@test(machines=1)
def honest_control(bench):
    """The same program, by the rules: what the others show is the attacks' doing."""
    attack(bench, "control")


@test(machines=1)
def bad_hello(bench):
    attack(bench, "hello")


@test(machines=1)
def bad_answer(bench):
    attack(bench, "hello_ack")


@test(machines=1)
def half_open(bench):
    attack(bench, "pending")


@test(machines=1)
def bad_messages(bench):
    attack(bench, "stream")


@test(machines=1)
def abort_in_every_state(bench):
    attack(bench, "abort")


@test(machines=1)
def floods(bench):
    attack(bench, "flood")


@test(machines=1)
def foreign_memory(bench):
    """RDMA Read and Write to keys and addresses that nobody has offered."""
    attack(bench, "rdma")


@test(machines=1)
def adverts(bench):
    """Memory offered that is not there, and memory read that was not, or is no more, offered."""
    attack(bench, "adverts")


@test(machines=1)
def vanished(bench):
    attack(bench, "vanish")
