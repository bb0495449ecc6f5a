# SPDX-License-Identifier: GPL-2.0
"""A peer that breaks the rules, with raw verbs: `hostile` of tools/.

Its victims are sockets of the same machine, whose counters it reads.
"""

import time

from vmlib import ktap
from vmlib.bench import Bench, expect, test, wait_for
from vmtests.peer import lose_acknowledgements


def attack(bench: Bench, group: str) -> None:
    """All attacks of a group; the failure names those that the module did not stand."""
    scale = f"--timeout-scale {bench.limit(1)}" + (" --every 16" if bench.kind == "debug" else "")
    job = bench.a.spawn(f"exec hostile --local {bench.address(bench.a)} {scale} {group}.")
    status = bench.finish(job, 400)
    reader = ktap.Reader()
    results = [found for line in job.lines for found in reader.feed(line)] + reader.end()
    failed = [f"{found.name}: {' '.join(found.detail)}" for found in results if found.outcome == "failed"]
    expect(not failed, "\n".join(failed))
    expect(results and status == 0, f"hostile ended with {status}:\n{job.output}")


@test(machines=1)
def honest_control(bench: Bench) -> None:
    """The same program, by the rules: what the others show is the attacks' doing."""
    attack(bench, "control")


@test(machines=1, core=("debug",))
def bad_hello(bench: Bench) -> None:
    attack(bench, "hello")


@test(machines=1, core=("debug",))
def bad_answer(bench: Bench) -> None:
    attack(bench, "hello_ack")


@test(machines=1, core=("debug",))
def half_open(bench: Bench) -> None:
    attack(bench, "pending")


@test(machines=1, core=("debug",))
def bad_messages(bench: Bench) -> None:
    attack(bench, "stream")


@test(machines=1, core=("debug",))
def urgent_data(bench: Bench) -> None:
    """Urgent bytes that are announced and do not come, that come unannounced, or among adverts."""
    attack(bench, "urgent")


@test(machines=1, core=("debug",))
def abort_in_every_state(bench: Bench) -> None:
    attack(bench, "abort")


@test(machines=1, core=("debug",))
def floods(bench: Bench) -> None:
    attack(bench, "flood")


@test(machines=1, core=("debug",))
def foreign_memory(bench: Bench) -> None:
    """RDMA Read and Write to keys and addresses that nobody has offered."""
    attack(bench, "rdma")


@test(machines=1, core=("debug",))
def adverts(bench: Bench) -> None:
    """Memory offered that is not there, and memory read that was not, or is no more, offered."""
    attack(bench, "adverts")


@test(machines=1, core=("debug",))
def sink_adverts(bench: Bench) -> None:
    """The same of memory that a reader offers, and that is written to."""
    attack(bench, "sinks")


@test(machines=1, core=("stock",))
def orphans(bench: Bench) -> None:
    """A peer that reads slowly what a closed socket has sent."""
    attack(bench, "orphans")


@test(machines=1, core=("stock",))
def idle_receives(bench: Bench) -> None:
    """A peer that has made the receives large, and sends nothing, by the rules and not."""
    attack(bench, "resize")


@test(machines=1, core=("debug",))
def later_reads(bench: Bench) -> None:
    """Memory whose send() has returned, read while it is lent and when it is not."""
    attack(bench, "later")


@test(machines=1, core=("debug",))
def early_receives(bench: Bench) -> None:
    """Memory lent to receives that return early, which is not what the advert says, or not for long."""
    attack(bench, "early")


@test(machines=1, core=("debug",))
def vanished(bench: Bench) -> None:
    attack(bench, "vanish")


@test(breaks=True, kinds=("stock",))
def keys_stay_dead(bench: Bench) -> None:
    """A peer whose adapter acknowledges nothing, so that the sender's does its registrations again."""
    where = f"{bench.address(bench.a)}:7399"
    victim = bench.a.spawn(f"exec hostile --victim {where}")
    wait_for(lambda: "ready" in victim.output, bench.limit(20), "no victim")
    lose_acknowledgements(bench.b, 100)
    time.sleep(0.5)
    attack = bench.b.spawn(f"exec hostile --revive {where}")
    status = bench.finish(attack, 60)
    expect(status == 0, f"{attack.output}\nthe victim: {victim.output}\n{bench.stats(bench.a)}")
    expect(bench.stats(bench.a)["advert_posted"] > 0, "the victim has advertised nothing: no attack")
    # Either it has waited with its registration, or its keys have stayed dead.
    expect("no advert" in attack.output or "sent 900000" in victim.output,
           f"{attack.output}\nthe victim: {victim.output}")
