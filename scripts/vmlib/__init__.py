# SPDX-License-Identifier: GPL-2.0
"""The library of the virtual-machine scripts; it uses only Python's standard library."""
