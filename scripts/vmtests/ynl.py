# SPDX-License-Identifier: GPL-2.0
"""The netlink family by its specification: the kernel's own client, which has no other knowledge of the family.

The client is written in Python, for which the debug kernel is too slow; there the tests of sdpctl cover the
module's side.
"""

import json

from vmlib.bench import Bench, expect, test, wait_for
from vmlib.machine import Vm
from vmlib.schema import Json
from vmtests.sdpctl import BYTES, CONNECTIONS, Connections, ask, sockets

YNL = "python3 /usr/lib/ynl/cli.py --spec /usr/lib/ynl/specs/ib-sdp.yaml --no-schema --output-json"


def ynl(vm: Vm, operation: str, request: Json | None = None) -> Json:
    """The reply to an operation."""
    json_text = f" --json '{json.dumps(request)}'" if request else ""
    return json.loads(vm.check(f"{YNL} --{operation}{json_text}"))


def plain(name: str) -> str:
    return name.replace("-", "").lower()


@test(machines=1, kinds=("stock",))
def sockets_and_counters(bench: Bench) -> None:
    """Each reply agrees with sdpctl; requests can filter."""
    vm, address = bench.a, bench.address(bench.a)
    module = ynl(vm, "do module-get")
    expect(module["protocol"] > 0 and "sink" in module["features"], module)
    with Connections(bench, 7651), Connections(bench, 7652, 1, "6"):
        wait_for(lambda: sum(s["recv_queue"] for s in sockets(vm, "--sport 7651")) == CONNECTIONS * BYTES,
                 bench.limit(20), "not all has come")
        known = {s["cookie"]: s for s in sockets(vm, "-a")}
        shown = ynl(vm, "dump sock-get")
        expect(sorted(s["cookie"] for s in shown) == sorted(known), f"{shown}\n{known}")
        for s in shown:
            other = known[s["cookie"]]
            expect(plain(s["state"]) == plain(other["state"]), f"{s}\n{other}")
            expect((s["local-addr"], s["local-port"]) == (other["local"]["address"], other["local"]["port"]), s)
            if s["state"] == "listen":
                continue
            expect((s["peer-addr"], s["peer-port"]) == (other["peer"]["address"], other["peer"]["port"]), s)
            expect((s["rx-queue"], s["inode"], s["uid"]) == (other["recv_queue"], other["inode"], other["uid"]), s)
            expect({c["name"]: c["value"] for c in s.get("counter", [])} == other["counters"], f"{s}\n{other}")
            expect(s["mode"] == other["mode"], f"{s}\n{other}")
        for request, count in (({"local-port": 7651, "states": ["established"]}, CONNECTIONS),
                               ({"states": ["listen"]}, sum(s["state"] == "Listen" for s in known.values())),
                               ({"family": 10, "states": ["established"]}, 2),
                               ({"peer-addr": address, "peer-port": 7651}, CONNECTIONS),
                               ({"local-addr": "10.0.0.0", "local-prefix": 8, "states": ["established"]},
                                2 * CONNECTIONS),
                               ({"local-addr": "fd27::99"}, 0)):
            found = ynl(vm, "dump sock-get", request)
            expect(len(found) == count, f"{request}: {len(found)} instead of {count}")
        counted = {c["name"]: c["value"] for c in ynl(vm, "dump stat-get")}
        expect(counted == ask(vm, "stat --absolute --zeros")["counters"], counted)
    refused = vm.run(f"{YNL} --dump sock-get --json '{{\"family\": 5}}'")
    expect(refused.rc == 1 and "the family is AF_INET or AF_INET6" in refused.output, refused.output)


@test(machines=1, kinds=("stock",))
def events(bench: Bench) -> None:
    """A connection is established and closed, and another one is refused."""
    vm, address = bench.a, bench.address(bench.a)
    # The client prints nothing when it has subscribed: connect until it has seen one event.
    watcher = vm.spawn(f"exec python3 -u /usr/lib/ynl/cli.py {YNL.split(' ', 2)[2]} --subscribe events")

    def seen(name: str) -> list[Json]:
        told = [json.loads(line) for line in watcher.lines if line.startswith("{")]
        return [e["msg"] for e in told if e["name"] == name]

    def has_seen() -> list[Json]:
        vm.run(f"sdpctl check {address}:7654")
        return seen("failed-ntf")
    wait_for(has_seen, bench.limit(40), watcher)
    refused = seen("failed-ntf")[0]
    expect((refused["peer-addr"], refused["peer-port"], refused["error"], refused["refusal"]) ==
           (address, 7654, 111, "NoListener"), refused)
    with Connections(bench, 7653, 1):
        pass
    wait_for(lambda: len(seen("established-ntf")) == 2 and len(seen("closed-ntf") + seen("failed-ntf")[1:]) >= 2,
             bench.limit(20), watcher)
    ends = sorted(e["local-port"] == 7653 for e in seen("established-ntf"))
    expect(ends == [False, True], watcher.output)
    watcher.kill()
