# SPDX-License-Identifier: GPL-2.0
"""Tests that need the host's hand: programs of others, loading, a peer that dies.

Each module registers functions with `@test`; a function takes a Bench.
"""

import importlib
import pkgutil


def load() -> None:
    """Imports every module of this folder, which registers its tests."""
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        importlib.import_module(f"{__name__}.{module.name}")
