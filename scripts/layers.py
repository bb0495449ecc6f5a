#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Checks that no file of rust/ imports from a layer above its own, by the list in rust/layers.

usage: layers.py [--write]

Each path in the code that begins with crate, super or self is an import. An `impl` that gives methods
to a type of another layer is refused, too: that layer could call them without an import. A trait of a
lower layer may be implemented.

Documentation/overview.rst must show the list; --write puts it there.
"""

import re
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
# The module path of the crate's root is empty.
ROOT = "ib_sdp_main"
IGNORED = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])'""", re.DOTALL)
USE = re.compile(r"\buse\s+([^;]+);")
PATH = re.compile(r"\b(?:crate|super|self)(?:\s*::\s*\w+)+")
IMPL = re.compile(r"^impl(?:<[^{]*?>)?\s+(\w+)(?:<[^{]*>)?\s*(?:where\b[^{]*)?\{", re.MULTILINE)
MODULE = re.compile(r"\bmod\s+(\w+)\s*\{")
SHOWN = re.compile(r"(?<=^\.\. layers\n\n::\n\n).*?(?=\n^\S)", re.DOTALL | re.MULTILINE)

Module = tuple[str, ...]


class Layers:
    """The layers of the list, top first."""

    def __init__(self, text: str):
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        self.shown = "".join(f"    {line}\n" for line in lines)
        self.names = [line.split()[0] for line in lines]
        self.modules: list[Module] = [() if n == ROOT else tuple(n.split("::")) for n in self.names]

    def of(self, module: Module) -> int:
        """The layer that a module is in; of a module with layers inside, the uppermost of these. What is
        in no other layer is in the crate's root."""
        around = [m for m in self.modules if module[:len(m)] == m]
        inside = [m for m in self.modules if m[:len(module)] == module]
        innermost = max(around, key=len, default=())
        return self.modules.index(inside[0] if inside and innermost == () else innermost)


def code_of(source: str) -> str:
    """The source without comments and literals, with the same lines."""
    return IGNORED.sub(lambda match: " " + "\n" * match[0].count("\n"), source)


def flat(tree: str) -> list[str]:
    """The paths of a `use` tree."""
    head, brace, rest = tree.partition("{")
    if not brace:
        return [tree.split(" as ")[0]]
    parts, depth = [""], 0
    for c in rest[:rest.rindex("}")]:
        depth += {"{": 1, "}": -1}.get(c, 0)
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [head + path for part in parts if part.strip() for path in flat(part)]


def inline_modules(code: str) -> list[tuple[int, int, str]]:
    """Where the modules inside a file begin and end, and their names; outer ones first."""
    found = []
    for match in MODULE.finditer(code):
        depth, end = 1, match.end()
        while depth and end < len(code):
            depth += {"{": 1, "}": -1}.get(code[end], 0)
            end += 1
        found.append((match.end(), end, match[1]))
    return found


def imports(source: str, file_module: Module) -> list[tuple[int, Module]]:
    """What a file imports: line, and path from the crate's root."""
    code = code_of(source)
    inside = inline_modules(code)
    paths = [(use.start(1), path) for use in USE.finditer(code) for path in flat(use[1])]
    rest = USE.sub(lambda use: re.sub(r"\S", " ", use[0]), code)
    paths += [(path.start(), path[0]) for path in PATH.finditer(rest)]
    found = []
    for at, path in paths:
        words = [word for word in re.split(r"[\s:]+", path) if word]
        module = file_module + tuple(name for start, end, name in inside if start <= at < end)
        if words[0] == "crate":
            module = ()
        elif words[0] not in ("self", "super"):
            # Another crate, or a module inside this one.
            continue
        while words and words[0] in ("crate", "self", "super"):
            if words.pop(0) == "super":
                module = module[:-1]
        names = tuple(word for word in words if word not in ("self", "*"))
        found.append((code.count("\n", 0, at) + 1, module + names))
    return found


def impls(source: str) -> list[tuple[int, str]]:
    """The types that get methods in a file, but for those of traits: line, and name."""
    code = code_of(source)
    return [(code.count("\n", 0, match.start()) + 1, match[1]) for match in IMPL.finditer(code)]


def complaints(layers: Layers, folder: Path) -> list[str]:
    """What is wrong with the files of a folder."""
    found = [f"{folder.name}/layers: there is no {name}"
             for name in layers.names
             if not any((folder / (name.replace("::", "/") + end)).exists() for end in ("", ".rs"))]
    for file in sorted(folder.rglob("*.rs")):
        relative = file.relative_to(folder)
        module = () if relative.stem == ROOT else relative.with_suffix("").parts
        if "generated" in module:
            continue
        own = layers.of(module)
        if module and layers.names[own] == ROOT:
            found.append(f"{folder.name}/{relative}: not in {folder.name}/layers")
            continue
        source = file.read_text()
        imported = imports(source, module)
        where = {path[-1]: layers.of(path) for _, path in imported if path}
        wrong = [(line, f"imports {'::'.join(('crate', *path))} of {layers.names[layers.of(path)]}, "
                        "which is above it")
                 for line, path in imported if layers.of(path) < own]
        wrong += [(line, f"gives methods to {name} of {layers.names[where[name]]}")
                  for line, name in impls(source) if where.get(name, own) != own]
        found += [f"{folder.name}/{relative}:{line}: {layers.names[own]} {what}"
                  for line, what in sorted(set(wrong))]
    return found


def main() -> int:
    layers = Layers((TOP / "rust/layers").read_text())
    page = TOP / "Documentation/overview.rst"
    text = page.read_text()
    new = SHOWN.sub(lambda _: layers.shown, text)
    found = complaints(layers, TOP / "rust")
    if "--write" in sys.argv:
        page.write_text(new)
    elif layers.shown not in text:
        found.append("Documentation/overview.rst does not show rust/layers: scripts/layers.py --write")
    print("".join(line + "\n" for line in found), end="")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
