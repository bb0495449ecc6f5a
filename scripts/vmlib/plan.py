# SPDX-License-Identifier: GPL-2.0
"""What a run of the tests consists of: items for each kernel and number of machines."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from .bench import BY_ADVERTS, REGISTERED, Bench, Function
from .setup import Kernel

# How many seconds items took, by their names.
Times: TypeAlias = Mapping[str, float]

WORDS = {1: "one", 2: "two"}
# Seconds that an item counts for if no run has told yet how long it takes.
UNKNOWN = 5
# The whole suite inside, in either way, and what only the debug kernel has.
PLAIN, ADVERTS = "", BY_ADVERTS
# The groups of the suite inside whose code has cases for iWARP: set-up, ends, Reads, Writes.
IWARP_GROUPS = ("basics", "connect", "listen", "data", "close", "zcopy", "sink")
# The groups of the suite inside whose work the adapter does: what `make test` has of it there.
ADAPTER_GROUPS = ("basics", "connect", "data", "lengths", "close", "zcopy", "zerocopy", "sink", "sinkends", "azrecv",
                  "azends")
# The groups of the suite inside that send and receive without a copy, or beside such transfers. The others do
# the same by adverts as by copies: in `make test` the debug kernel runs these by adverts, the stock kernel by copies.
ADVERT_GROUPS = ("data", "urgent", "lengths", "random", "memory", "sharing", "missing", "zcopy", "zerocopy", "zabuse",
                 "sink", "sinkends", "azends", "azrecv", "azwhen", "azabuse", "azblock", "fuzz")
# Those of them whose sockets choose the asynchronous way themselves: the same, whatever the module's parameters.
# In `make test`, the stock kernel has them on one machine, with two processors, where its races are. The adapter's
# tests have some of them on two machines.
ASYNCHRONOUS_GROUPS = ("azends", "azrecv", "azwhen", "azabuse", "azblock", "fuzz")
# What takes seconds on a slow link: `make test` has it over the adapter (mishaps.stalled_receives).
SLOW_GROUPS = ("azstall",)
# What finds more the longer it runs, and how many times as long a run of everything has it.
LONG_GROUPS = {"fuzz": 10}
# Hundreds of connections, a fifth of all that the suite inside costs the debug kernel: in `make test` the
# stock kernel has them. Fewer of them meet the checkers in other tests.
MANY_CONNECTIONS = ("missing/many_that_wait_stop_nobody", "stress/streams_on_200_connections")
# The states in which `make test` compares a socket with TCP's on the debug kernel. The others are a tenth of what
# its tests on one machine cost; their calls go the same ways through the module's locks.
COMPARED_STATES = {f"astcp/{state}" for state in ("new", "listening", "connected_with_bytes", "reset")}
CORE_GROUPS = {"siw": IWARP_GROUPS, "pvrdma": ADAPTER_GROUPS}


class Item:
    """What a set of machines does at a time: a test, or a group of the suite inside."""

    breaks = False
    parameters = PLAIN

    def __init__(self, name: str) -> None:
        self.name = name


class TestItem(Item):
    """A function that is given a Bench."""

    def __init__(self, name: str, function: Function, breaks: bool = False, parameters: str = PLAIN) -> None:
        super().__init__(name)
        self.function = function
        self.breaks = breaks
        self.parameters = parameters


class GroupItem(Item):
    """Tests of one group of tools/selftest, with the module's parameters for that, and so many times as much of
    everything."""

    def __init__(self, prefix: str, group: str, tests: list[str], parameters: str, scale: float = 1) -> None:
        super().__init__(f"{prefix}.{group}/")
        self.prefix = prefix
        self.tests = tests
        self.parameters = parameters
        self.scale = scale


class KunitItem(Item):
    """KUnit's suites, which ran as the module was loaded."""


class Queue:
    """The items of one kernel and one number of machines, the longest first."""

    def __init__(self, kernel: Kernel, count: int, items: Iterable[Item], times: Times) -> None:
        self.kernel = kernel
        self.count = count
        self.name = f"{kernel.name}.{WORDS[count]}"
        self.items = sorted(items, key=lambda item: -times.get(item.name, UNKNOWN))
        self.times = times
        self.lanes = 0
        self.booted = 0

    def seconds(self) -> float:
        """How long what is left would take on one set of machines."""
        return sum(self.times.get(item.name, UNKNOWN) for item in self.items)

    def breaking(self) -> int:
        """How many items want machines that nobody uses after them."""
        return sum(item.breaks for item in self.items)

    def take(self, parameters: str | None) -> Item | None:
        """The next item for machines whose module has these parameters; None if there is none.

        What breaks its machines comes last, and what needs other parameters before it.
        """
        best = min(self.items, key=lambda item: (item.breaks, item.parameters != parameters), default=None)
        if best is not None:
            self.items.remove(best)
        return best


class Plan:
    """Chooses the items. `core` leaves out what another kernel or number of machines shows as well."""

    def __init__(self, core: bool, patterns: Sequence[str], counts: Sequence[int],
                 groups: Mapping[str, list[str]], times: Times) -> None:
        self.core = core
        self.patterns = patterns
        self.counts = counts
        self.groups = groups
        self.times = times

    def wants(self, name: str) -> bool:
        return not self.patterns or any(p in name for p in self.patterns)

    def queue(self, kernel: Kernel, count: int) -> Queue:
        """The queue for that kernel and number of machines."""
        prefix = f"{kernel.name}.{WORDS[count]}"
        items: list[Item] = [
            TestItem(f"{prefix}.{t.name}", t.function, t.breaks) for t in REGISTERED if t.machines == count
            and kernel.adapter == t.adapter and kernel.kind in (t.core if self.core else t.kinds)
            and not (self.core and kernel.series)
            and self.wants(f"{prefix}.{t.name}")]
        for way, parameters in self.ways(kernel, count):
            left_out = self.left_out() if self.core and kernel.kind == "debug" else ()
            items += self.suite(f"{prefix}.{way}", parameters, self.groups_of(kernel, way), left_out)
        if kernel.name == "debug" and count == self.counts[0] and self.wants("kunit"):
            items.append(KunitItem("kunit"))
        return Queue(kernel, count, items, self.times)

    def left_out(self) -> Collection[str]:
        """The tests of the suite inside that `make test` does not run on the debug kernel."""
        return {*MANY_CONNECTIONS, *self.groups.get("astcp", [])} - COMPARED_STATES

    def groups_of(self, kernel: Kernel, way: str) -> Iterable[str]:
        """Which groups of the suite inside run there in that way."""
        if not self.core:
            return self.groups
        if kernel.adapter in CORE_GROUPS:
            return CORE_GROUPS[kernel.adapter]
        # An older series has its run on one machine alone.
        both = kernel.kind == "stock" and not kernel.series
        if both and way == "adverts":
            return ADVERT_GROUPS
        left_out = SLOW_GROUPS + (ASYNCHRONOUS_GROUPS if both else ())
        return [group for group in self.groups if group not in left_out]

    def ways(self, kernel: Kernel, count: int) -> list[tuple[str, str]]:
        """In which ways the suite inside runs there: a word for the results, and parameters."""
        if kernel.adapter == "siw" and self.core:
            return [("adverts", ADVERTS)] if kernel.kind == "stock" and count == 1 else []
        if kernel.adapter == "pvrdma":
            if self.core:
                return [("adverts", ADVERTS)] if kernel.name == "stock-pvrdma" and count == 2 else []
            return [("selftest", PLAIN), ("adverts", ADVERTS)]
        if kernel.kind == "debug":
            # It is slow: by adverts on one machine, as users have it on two.
            return [("selftest", ADVERTS)] if count == 1 else [] if self.core else [("selftest", PLAIN)]
        if count == 2:
            return [] if self.core and kernel.series else [("selftest", PLAIN)]
        return [("adverts", ADVERTS)] if self.core else [("selftest", PLAIN), ("adverts", ADVERTS)]

    def suite(self, prefix: str, parameters: str, groups: Iterable[str], left_out: Collection[str]) -> list[Item]:
        """Those groups of the suite inside, one at a time, without the tests that are left out."""
        items: list[Item] = []
        for group in groups:
            tests = self.groups.get(group, [])
            chosen = [t for t in tests if t not in left_out and self.wants(f"{prefix}.{t}")]
            if chosen:
                scale = 1 if self.core or self.patterns else LONG_GROUPS.get(group, 1)
                items.append(GroupItem(prefix, group, chosen, parameters, scale))
        if items and parameters == ADVERTS and self.wants(f"{prefix}.adverts_are_used"):
            items.append(TestItem(f"{prefix}.adverts_are_used", Bench.expect_adverts, parameters=ADVERTS))
        return items

    def queues(self, kernels: list[Kernel]) -> list[Queue]:
        """All of them that have something to do. Those with soft-iWARP and with the test adapter must be
        meant: a pattern that does not say so is for the others."""
        def meant(word: str) -> bool:
            return not self.patterns or any(word in pattern for pattern in self.patterns)
        added = []
        if meant("siw"):
            # The newest series is enough.
            added += [kernel.with_siw() for kernel in kernels if not kernel.series]
        if meant("pvrdma"):
            added += [kernel.with_pvrdma() for kernel in kernels]
        kernels = kernels + added
        made = [self.queue(kernel, count) for kernel in kernels for count in self.counts]
        return [queue for queue in made if queue.items]
