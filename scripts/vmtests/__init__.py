# SPDX-License-Identifier: GPL-2.0
"""Tests that act from the host: run programs of other projects, load the module, kill a peer.

Each module registers functions with `@test`; each function takes a Bench.
"""

import importlib
import pkgutil


def load() -> None:
    """Imports every module of this folder, which registers its tests."""
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        importlib.import_module(f"{__name__}.{module.name}")
