# SPDX-License-Identifier: GPL-2.0
"""What the virtual-machine scripts share; Python's standard library only."""
