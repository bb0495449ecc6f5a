# SPDX-License-Identifier: GPL-2.0
"""The frequency of the time stamp counter."""

import unittest

from vmlib.tsc import tsc_khz


class Frequency(unittest.TestCase):
    def test_it_is_the_same_each_time(self) -> None:
        first = tsc_khz()
        tsc_khz.cache_clear()
        self.assertGreater(first, 500_000)
        self.assertAlmostEqual(tsc_khz() / first, 1, delta=0.01)
