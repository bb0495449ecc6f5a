# SPDX-License-Identifier: GPL-2.0
"""The plan of a test run: items for each kernel and number of machines."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from .bench import BY_ADVERTS, REGISTERED, Bench, Function
from .setup import Kernel

# The time of each item in seconds, by name.
Times: TypeAlias = Mapping[str, float]

WORDS = {1: "one", 2: "two"}
# The assumed time in seconds of an item that was never measured.
UNKNOWN = 5
# The parameters for the plain form of the selftests, and for the form by adverts.
PLAIN, ADVERTS = "", BY_ADVERTS
# The groups of the selftests whose code has cases for iWARP: set-up, ends, Reads, Writes.
IWARP_GROUPS = ("basics", "connect", "listen", "data", "close", "zcopy", "sink")
# The groups of the selftests that exercise the adapter: `make test` runs them over it.
ADAPTER_GROUPS = ("basics", "connect", "data", "lengths", "close", "zcopy", "zerocopy", "sink", "sinkends", "azrecv",
                  "azends")
# The groups of the selftests that send and receive without a copy, or beside such transfers. The
# result of the other groups does not depend on the path: in `make test`, the debug kernel runs the
# other groups by adverts, and the stock kernel runs them by copies.
ADVERT_GROUPS = ("data", "urgent", "lengths", "random", "memory", "sharing", "missing", "zcopy", "zerocopy", "zabuse",
                 "sink", "sinkends", "azends", "azpins", "azrecv", "azwhen", "azabuse", "azblock", "fuzz")
# Those of ADVERT_GROUPS whose sockets choose the asynchronous way themselves: the module's
# parameters do not affect them. In `make test`, the stock kernel runs them on one machine, with two
# processors, where races are likely. The adapter's tests run some of them on two machines.
ASYNCHRONOUS_GROUPS = ("azends", "azpins", "azrecv", "azwhen", "azabuse", "azblock", "fuzz")
# Groups that take long on a slow link: `make test` runs them over the adapter
# (mishaps.stalled_receives).
SLOW_GROUPS = ("azstall",)
# Groups that find more the longer they run, and the factor of their amounts in a run of everything.
LONG_GROUPS = {"fuzz": 10}
# Where these groups run for a fixed time in a run of everything: on the fastest machines.
LONGEST = "stock.one.selftest"
# The factor for the amounts that `make test` uses on older series, beside the factor for all
# kernels: the same tests run on the newest one.
SERIES_SCALE = 0.5
# Tests with hundreds of connections, which take a fifth of the time of the selftests on the
# debug kernel: in `make test` only the stock kernel runs them, and over soft-iWARP in `make test-all`.
# Other tests run fewer connections under the checkers.
MANY_CONNECTIONS = ("missing/many_that_wait_stop_nobody", "stress/streams_on_200_connections")
# The states in which `make test` compares a socket with TCP's on the debug kernel. The others take
# a tenth of the time of its tests on one machine; their calls take the module's locks in the same
# ways.
COMPARED_STATES = {f"astcp/{state}" for state in ("new", "listening", "connected_with_bytes", "reset")}
CORE_GROUPS = {"siw": IWARP_GROUPS, "pvrdma": ADAPTER_GROUPS}


class Item:
    """One unit of work for a set of machines: a test, or a group of the selftests."""

    breaks = False
    parameters = PLAIN

    def __init__(self, name: str) -> None:
        self.name = name


class TestItem(Item):
    """A test function that gets a Bench."""

    def __init__(self, name: str, function: Function, breaks: bool = False, parameters: str = PLAIN) -> None:
        super().__init__(name)
        self.function = function
        self.breaks = breaks
        self.parameters = parameters


class GroupItem(Item):
    """Tests of one group of tools/selftest, with the module's parameters for them, and the factor of
    their amounts. Random calls have a seed, and may have a fixed time in seconds."""

    def __init__(self, prefix: str, group: str, tests: list[str], parameters: str, scale: float = 1,
                 seed: int | None = None, seconds: int | None = None) -> None:
        super().__init__(f"{prefix}.{group}/")
        self.prefix = prefix
        self.tests = tests
        self.parameters = parameters
        self.scale = scale
        self.seed = seed
        self.seconds = seconds


class KunitItem(Item):
    """KUnit's suites, which run when the module is loaded."""


class Queue:
    """The items of one kernel and one number of machines, the longest first."""

    def __init__(self, kernel: Kernel, count: int, items: Iterable[Item], times: Times) -> None:
        self.kernel = kernel
        self.count = count
        self.name = f"{kernel.name}.{WORDS[count]}"
        self.times = times
        self.items = sorted(items, key=lambda item: -self.time_of(item))
        self.lanes = 0
        # Lanes that have no item now, and will take one.
        self.idle = 0
        self.booted = 0

    def time_of(self, item: Item) -> float:
        if isinstance(item, GroupItem) and item.seconds is not None:
            return item.seconds
        return self.times.get(item.name, UNKNOWN)

    def seconds(self) -> float:
        """How long the remaining items would take on one set of machines."""
        return sum(self.time_of(item) for item in self.items)

    def breaking(self) -> int:
        """The number of items that make their machines unusable."""
        return sum(item.breaks for item in self.items)

    def take(self, parameters: str, fits: Callable[[Item], bool]) -> Item | None:
        """The next item for machines whose module has these parameters; None if there is none that fits now.

        Items that break their machines come last; items that need other parameters come before these.
        """
        def turn(item: Item) -> tuple[bool, bool]:
            return item.breaks, item.parameters != parameters
        now = min(map(turn, self.items), default=None)
        for item in self.items:
            if turn(item) == now and fits(item):
                self.items.remove(item)
                return item
        return None


class Plan:
    """Chooses the items. `core` leaves out items that another kernel or number of machines also covers. `seed`
    and `seconds` are for random calls: their seed, and their time at LONGEST, or in all items that patterns
    select."""

    def __init__(self, core: bool, patterns: Sequence[str], counts: Sequence[int],
                 groups: Mapping[str, list[str]], times: Times, seed: int | None = None,
                 seconds: int | None = None) -> None:
        self.core = core
        self.patterns = patterns
        self.counts = counts
        self.groups = groups
        self.times = times
        self.seed = seed
        self.seconds = seconds

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
            left_out = self.left_out(kernel)
            items += self.suite(kernel, f"{prefix}.{way}", parameters, self.groups_of(kernel, way), left_out)
        if kernel.name == "debug" and count == self.counts[0] and self.wants("kunit"):
            items.append(KunitItem("kunit"))
        return Queue(kernel, count, items, self.times)

    def left_out(self, kernel: Kernel) -> Collection[str]:
        """The selftests that do not run there: on the debug kernel, many connections over soft-iWARP take longer
        than a test may, and `make test` leaves out more."""
        if kernel.kind != "debug":
            return ()
        if self.core:
            return {*MANY_CONNECTIONS, *self.groups.get("astcp", [])} - COMPARED_STATES
        return MANY_CONNECTIONS if kernel.adapter == "siw" else ()

    def groups_of(self, kernel: Kernel, way: str) -> Iterable[str]:
        """The groups of the selftests that run there in that way."""
        if not self.core:
            return self.groups
        if kernel.adapter in CORE_GROUPS:
            return CORE_GROUPS[kernel.adapter]
        # An older series runs on one machine only.
        both = kernel.kind == "stock" and not kernel.series
        if both and way == "adverts":
            return ADVERT_GROUPS
        left_out = SLOW_GROUPS + (ASYNCHRONOUS_GROUPS if both else ())
        return [group for group in self.groups if group not in left_out]

    def ways(self, kernel: Kernel, count: int) -> list[tuple[str, str]]:
        """The ways in which the selftests run there: a word for the results, and parameters."""
        if kernel.adapter == "siw" and self.core:
            return [("adverts", ADVERTS)] if kernel.kind == "stock" and count == 1 else []
        if kernel.adapter == "pvrdma":
            if self.core:
                return [("adverts", ADVERTS)] if kernel.name == "stock-pvrdma" and count == 2 else []
            return [("selftest", PLAIN), ("adverts", ADVERTS)]
        if kernel.kind == "debug":
            # The debug kernel is slow: by adverts on one machine, as users have it on two.
            return [("selftest", ADVERTS)] if count == 1 else [] if self.core else [("selftest", PLAIN)]
        if count == 2:
            return [] if self.core and kernel.series else [("selftest", PLAIN)]
        return [("adverts", ADVERTS)] if self.core else [("selftest", PLAIN), ("adverts", ADVERTS)]

    def scale(self, kernel: Kernel, group: str) -> float:
        """The factor for the amounts of a group there."""
        if self.core:
            return SERIES_SCALE if kernel.series else 1
        return 1 if self.patterns else LONG_GROUPS.get(group, 1)

    def suite(self, kernel: Kernel, prefix: str, parameters: str, groups: Iterable[str],
              left_out: Collection[str]) -> list[Item]:
        """These groups of the selftests, one item each, without the tests that are left out."""
        items: list[Item] = []
        for group in groups:
            tests = self.groups.get(group, [])
            chosen = [t for t in tests if t not in left_out and self.wants(f"{prefix}.{t}")]
            if chosen:
                scale = self.scale(kernel, group)
                seed = self.seed if group in LONG_GROUPS else None
                fixed = group in LONG_GROUPS and (prefix == LONGEST or bool(self.patterns))
                items.append(GroupItem(prefix, group, chosen, parameters, scale, seed,
                                       self.seconds if fixed else None))
        if items and parameters == ADVERTS and self.wants(f"{prefix}.adverts_are_used"):
            items.append(TestItem(f"{prefix}.adverts_are_used", Bench.expect_adverts, parameters=ADVERTS))
        return items

    def queues(self, kernels: list[Kernel]) -> list[Queue]:
        """All non-empty queues. Queues with soft-iWARP or the test adapter must be selected explicitly: other
        patterns do not include them."""
        def meant(word: str) -> bool:
            return not self.patterns or any(word in pattern for pattern in self.patterns)
        added = []
        if meant("siw"):
            # The newest series is sufficient.
            added += [kernel.with_siw() for kernel in kernels if not kernel.series]
        if meant("pvrdma"):
            added += [kernel.with_pvrdma() for kernel in kernels]
        kernels = kernels + added
        made = [self.queue(kernel, count) for kernel in kernels for count in self.counts]
        return [queue for queue in made if queue.items]
