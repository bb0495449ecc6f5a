# SPDX-License-Identifier: GPL-2.0
"""A peer that breaks the rules with raw verbs: `hostile` of tools/.

Its victims are sockets of the same machine. It checks the machine's counters.
"""

import time

from vmlib import ktap
from vmlib.bench import Bench, expect, test, wait_for
from vmtests.peer import lose_acknowledgements


def attack(bench: Bench, *groups: str) -> None:
    """Runs all attacks of some groups. The failure names the attacks that the module did not withstand."""
    scale = f"--timeout-scale {bench.limit(1)}" + (" --every 16" if bench.kind == "debug" else "")
    job = bench.a.spawn(f"exec hostile --local {bench.address(bench.a)} {scale} {' '.join(groups)}")
    status = bench.finish(job, 400)
    reader = ktap.Reader()
    results = [found for line in job.lines for found in reader.feed(line)] + reader.end()
    failed = [f"{found.name}: {' '.join(found.detail)}" for found in results if found.outcome == "failed"]
    expect(not failed, "\n".join(failed))
    expect(results and status == 0, f"hostile ended with {status}:\n{job.output}")


@test(machines=1)
def honest_control(bench: Bench) -> None:
    """The same program without an attack: failures of the other tests are due to the attacks."""
    attack(bench, "control.")


@test(machines=1, core=("debug",))
def bad_hello(bench: Bench) -> None:
    attack(bench, "hello.")


@test(machines=1, core=("debug",))
def bad_answer(bench: Bench) -> None:
    attack(bench, "hello_ack.")


@test(machines=1, core=("debug",))
def half_open(bench: Bench) -> None:
    attack(bench, "pending.")


@test(machines=1, kinds=("debug",), breaks=True)
def late_answer(bench: Bench) -> None:
    """A half-open connection loses its place while its worker still answers the request."""
    bench.unload(bench.a)
    bench.a.check("modprobe ib_sdp sdp_break=512")
    attack(bench, "pending.evicted")


@test(machines=1, core=("debug",))
def bad_messages(bench: Bench) -> None:
    attack(bench, "stream.")


@test(machines=1, core=("debug",))
def urgent_data(bench: Bench) -> None:
    """Urgent bytes that are announced and never sent, sent without announcement, or sent among adverts."""
    attack(bench, "urgent.")


@test(machines=1, core=("debug",))
def abort_in_every_state(bench: Bench) -> None:
    attack(bench, "abort.")


@test(machines=1, core=("debug",))
def floods(bench: Bench) -> None:
    attack(bench, "flood.")


@test(machines=1, core=("debug",))
def foreign_memory(bench: Bench) -> None:
    """RDMA Read and Write with keys and addresses that were never advertised."""
    attack(bench, "rdma.")


@test(machines=1, core=("debug",))
def adverts(bench: Bench) -> None:
    """Adverts of memory that does not exist; Reads of memory that is not, or no longer, advertised."""
    attack(bench, "adverts.")


@test(machines=1, core=("debug",))
def sink_adverts(bench: Bench) -> None:
    """The same with sink adverts and Writes."""
    attack(bench, "sinks.")


@test(machines=1, core=("stock",))
def orphans(bench: Bench) -> None:
    """A peer that reads slowly the bytes that a closed socket has sent."""
    attack(bench, "orphans.")


@test(machines=1, core=("stock",))
def idle_receives(bench: Bench) -> None:
    """A peer that has had the receives enlarged and then sends nothing, or breaks the rules."""
    attack(bench, "resize.")


@test(machines=1, core=("debug",))
def later_reads(bench: Bench) -> None:
    """Memory of a send() that has returned, read while it is advertised and afterwards."""
    attack(bench, "later.")


@test(machines=1, core=("debug",))
def early_receives(bench: Bench) -> None:
    """Adverts for receives that return early: the memory is not as advertised, or its advert ends early."""
    attack(bench, "early.")


@test(machines=1, core=("debug",))
def vanished(bench: Bench) -> None:
    attack(bench, "vanish.")


@test(kinds=("stock",), adapter="pvrdma")
def memory_over_the_adapter(bench: Bench) -> None:
    """Reads and Writes of memory that is not, or no longer, advertised: the adapter has its own checks of keys."""
    for group in ("rdma", "adverts", "sinks", "later"):
        attack(bench, f"{group}.")


@test(machines=1, adapter="siw", core=("stock",))
def over_iwarp(bench: Bench) -> None:
    """The attacks over iWARP, where a rule has other causes and other ends."""
    attack(bench, "control.", "hello.", "hello_ack.", "abort.", "flood.", "rdma.", "adverts.", "later.",
           "pending.full_backlog")


@test(machines=1, adapter="siw", core=())
def all_over_iwarp(bench: Bench) -> None:
    """The attacks over iWARP that wait for time-outs, or that do not depend on the adapter."""
    for group in ("pending", "stream", "urgent", "early", "sinks", "orphans", "resize", "vanish"):
        attack(bench, f"{group}.")


@test(breaks=True, kinds=("stock",))
def keys_stay_dead(bench: Bench) -> None:
    """The peer's adapter acknowledges nothing, so that the sender's adapter repeats its registrations."""
    where = f"{bench.address(bench.a)}:7399"
    victim = bench.a.spawn(f"exec hostile --victim {where}")
    wait_for(lambda: "ready" in victim.output, bench.limit(20), "no victim")
    lose_acknowledgements(bench.b, 100)
    time.sleep(0.5)
    attack = bench.b.spawn(f"exec hostile --revive {where}")
    status = bench.finish(attack, 60)
    expect(status == 0, f"{attack.output}\nthe victim: {victim.output}\n{bench.stats(bench.a)}")
    expect(bench.stats(bench.a)["advert_posted"] > 0, "the victim has advertised nothing: no attack")
    # Either the sender waited to register again and sent no advert, or its keys stayed invalid.
    expect("no advert" in attack.output or "sent 900000" in victim.output,
           f"{attack.output}\nthe victim: {victim.output}")


@test(kinds=("stock",))
def requests_from_false_addresses(bench: Bench) -> None:
    """A request that says it comes from a third machine is refused: the answers would go to the second one."""
    where = f"{bench.address(bench.a)}:7398"
    bench.a.check("rm -f /tmp/never; mkfifo /tmp/never")
    listener = bench.a.spawn(f"exec selftest idle --family sdp --conns 1 --listen {where} <>/tmp/never")
    wait_for(lambda: bench.a.check("sdpctl ss -lH --sport 7398"), bench.limit(20), "nobody listens")
    third = bench.address(bench.a).rpartition(".")[0] + ".99"
    before = bench.stats(bench.a)
    try:
        bench.b.check(f"hostile --local {bench.address(bench.b)} --forge {where} --claimed {third}")
        wait_for(lambda: bench.stats(bench.a)["request_received"] > before["request_received"], bench.limit(10),
                 "the request has not come")
        wait_for(lambda: bench.stats(bench.a)["refused_bad_address"] > before["refused_bad_address"],
                 bench.limit(5), "the request was not refused")
        shown = bench.a.check("sdpctl ss -aH --sport 7398").splitlines()
        expect(len(shown) == 1, f"more than a listener: {shown}")
    finally:
        listener.kill()
