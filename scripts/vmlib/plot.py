# SPDX-License-Identifier: GPL-2.0
"""Pictures of figures, drawn by gnuplot."""

import subprocess
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from .machine import VmError

# Values by series and row.
Series: TypeAlias = Mapping[str, Mapping[str, float]]

HEAD = """
set terminal svg noenhanced size {width},{height} font "sans-serif,13" background "white" dynamic
set output
set style fill solid 0.85
set grid ytics
set yrange [0:*]
set border 3
set tics nomirror out
"""


def draw(path: str, script: str) -> None:
    """Writes gnuplot's output for a script to a file."""
    result = subprocess.run(["gnuplot", "-"], input=script, capture_output=True, text=True, check=False)
    if result.returncode or not result.stdout:
        raise VmError(f"gnuplot ended with {result.returncode}: {result.stderr}")
    with open(path, "w", encoding="utf-8") as file:
        file.write(result.stdout)


def block(name: str, series: Series) -> str:
    """Values by row and series as a data block for gnuplot."""
    titles = list(next(iter(series.values())))
    rows = [" ".join(['"' + title + '"', *(f"{values[title]:.3f}" for values in series.values())]) for title in titles]
    return f"${name} << EOD\n" + "\n".join(rows) + "\nEOD\n"


def bars(path: str, title: str, panels: Sequence[tuple[str, Series]]) -> None:
    """Draws panels side by side; each has the name of its values, with their unit, and the values by series and
    row."""
    script = HEAD.format(width=480 * len(panels), height=420)
    for number, (_, series) in enumerate(panels):
        script += block(f"panel{number}", series)
    script += f'set multiplot layout 1,{len(panels)} title "{title}"\nset style data histograms\n'
    script += "set style histogram rowstacked\nset boxwidth 0.7\nset xtics rotate by -40 scale 0\n"
    for number, (name, series) in enumerate(panels):
        script += f'set title "{name}"\nset key {"top right" if len(series) > 1 else "off"}\nplot ' + ", ".join(
            f'$panel{number} using {column + 2}:xtic(1) title "{which}"' for column, which in enumerate(series)) + "\n"
    draw(path, script + "unset multiplot\n")


def lines(path: str, title: str, made: str, axis: str, unit: str, series: Series,
          both_logarithmic: bool = False) -> None:
    """A picture of values by series over numbers, which are on a logarithmic scale if they span much. `made`: when
    and how the values were measured."""
    script = HEAD.format(width=760, height=480)
    shown = {name: values for name, values in series.items() if values}
    if not shown:
        return
    numbers = sorted({float(row) for values in shown.values() for row in values})
    for number, values in enumerate(shown.values()):
        rows = "\n".join(f"{row} {value:.4f}" for row, value in values.items())
        script += f"$line{number} << EOD\n{rows}\nEOD\n"
    if numbers[0] > 0 and numbers[-1] / numbers[0] >= 8:
        script += "set logscale x 2\n"
        script += "set xtics (" + ", ".join(f'"{short(n)}" {n:.0f}' for n in numbers) + ")\n"
    if both_logarithmic:
        script += "set logscale y\nset yrange [*:*]\n"
    script += (f'set title "{title}\\n{made}"\nset xlabel "{axis}"\nset ylabel "{unit}"\nset key outside right top\n'
               'set style data linespoints\nset grid xtics\nplot ')
    draw(path, script + ", ".join(f'$line{number} using 1:2 title "{name}" linewidth 2'
                                  for number, name in enumerate(shown)) + "\n")


def short(number: float) -> str:
    """A number of bytes or of other things, as an axis has room for it."""
    for unit, factor in (("M", 1 << 20), ("K", 1 << 10)):
        if number >= factor and number % factor == 0:
            return f"{number / factor:.0f}{unit}"
    return f"{number:.0f}"
