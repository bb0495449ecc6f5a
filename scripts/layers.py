#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Checks that no file of rust/ imports from a layer above its own, by the list in rust/layers.

usage: layers.py [--write]

Each path in the code that begins with crate, super or self is an import. A layer whose line begins with
"=" is beside the one above it: neither imports from the other.

An `impl` that gives methods to a type of another layer is refused, too: that layer could call them
without an import. Among the layers inside one module (a::b and a::c) it is allowed, but no layer may call
such a method of a layer above it; of methods whose name another function has, too, nobody knows which
one is called. A trait of a lower layer may be implemented.

Documentation/overview.rst must show the list; --write puts it there.
"""

import re
import sys
from collections import Counter
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
# The module path of the crate's root is empty.
ROOT = "ib_sdp_main"
IGNORED = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])'""", re.DOTALL)
USE = re.compile(r"\buse\s+([^;]+);")
PATH = re.compile(r"\b(?:crate|super|self)(?:\s*::\s*\w+)+")
IMPL = re.compile(r"^impl(?:<[^{]*?>)?\s+(\w+)(?:<[^{]*>)?\s*(?:where\b[^{]*)?\{", re.MULTILINE)
METHOD = re.compile(r"\bfn\s+(\w+)")
CALL = re.compile(r"(?:\.|::)\s*(\w+)\s*(?:::\s*<[^>;]*>\s*)?\(")
VISIBLE_IN = re.compile(r"\bpub\s*\(\s*in\b[^)]*\)")
MODULE = re.compile(r"\bmod\s+(\w+)\s*\{")
SHOWN = re.compile(r"(?<=^\.\. layers\n\n::\n\n).*?(?=\n^\S)", re.DOTALL | re.MULTILINE)

Module = tuple[str, ...]


class Layers:
    """The layers of the list, top first."""

    def __init__(self, text: str):
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        self.shown = "".join(f"    {line}\n" for line in lines)
        names = [line.split()[0] for line in lines]
        self.beside = [name.startswith("=") for name in names]
        self.names = [name.removeprefix("=") for name in names]
        self.modules: list[Module] = [() if n == ROOT else tuple(n.split("::")) for n in self.names]

    def of(self, module: Module) -> int:
        """The layer that a module is in; of a module with layers inside, the uppermost of these. What is
        in no other layer is in the crate's root."""
        around = [m for m in self.modules if module[:len(m)] == m]
        inside = [m for m in self.modules if m[:len(module)] == module]
        innermost = max(around, key=len, default=())
        return self.modules.index(inside[0] if inside and innermost == () else innermost)

    def wrong(self, own: int, other: int) -> str:
        """Why a layer must not use another one; empty if it may."""
        if other < own:
            return "beside it" if other == own - 1 and self.beside[own] else "above it"
        return "beside it" if other == own + 1 and self.beside[other] else ""

    def are_in_one(self, a: int, b: int) -> bool:
        """Whether two layers are inside one module."""
        return self.modules[a][:1] == self.modules[b][:1]


def code_of(source: str) -> str:
    """The source without comments, literals and visibilities, with the same lines."""
    def blank(match: re.Match[str]) -> str:
        return " " + "\n" * match[0].count("\n")
    return VISIBLE_IN.sub(blank, IGNORED.sub(blank, source))


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


def end_of(code: str, begin: int) -> int:
    """Where the block ends that begins behind a brace."""
    depth, end = 1, begin
    while depth and end < len(code):
        depth += {"{": 1, "}": -1}.get(code[end], 0)
        end += 1
    return end


def inline_modules(code: str) -> list[tuple[int, int, str]]:
    """Where the modules inside a file begin and end, and their names; outer ones first."""
    return [(match.end(), end_of(code, match.end()), match[1]) for match in MODULE.finditer(code)]


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


def impls(source: str) -> list[tuple[int, str, list[str]]]:
    """The types that get methods in a file, but for those of traits: line, name, and methods."""
    code = code_of(source)
    return [(code.count("\n", 0, match.start()) + 1, match[1],
             METHOD.findall(code, match.end(), end_of(code, match.end())))
            for match in IMPL.finditer(code)]


def calls(source: str) -> list[tuple[int, str]]:
    """The methods that a file calls: line, and name."""
    code = code_of(source)
    return [(code.count("\n", 0, match.start(1)) + 1, match[1]) for match in CALL.finditer(code)]


class File:
    """A file with its layer."""

    def __init__(self, path: Path, module: Module, own: int, layers: Layers):
        self.path, self.own = path, own
        self.source = path.read_text()
        self.imports = imports(self.source, module)
        where = {path[-1]: layers.of(path) for _, path in self.imports if path}
        # Methods for types of other layers.
        self.given = [(line, name, where[name], methods) for line, name, methods in impls(self.source)
                      if where.get(name, own) != own]


def complaints(layers: Layers, folder: Path) -> list[str]:
    """What is wrong with the files of a folder."""
    found = [f"{folder.name}/layers: there is no {name}"
             for name in layers.names
             if not any((folder / (name.replace("::", "/") + end)).exists() for end in ("", ".rs"))]
    files = []
    for path in sorted(folder.rglob("*.rs")):
        relative = path.relative_to(folder)
        module = () if relative.stem == ROOT else relative.with_suffix("").parts
        if "generated" in module:
            continue
        own = layers.of(module)
        if module and layers.names[own] == ROOT:
            found.append(f"{folder.name}/{relative}: not in {folder.name}/layers")
            continue
        files.append(File(path, module, own, layers))
    functions = Counter(name for file in files for name in METHOD.findall(code_of(file.source)))
    given = {name: file.own for file in files for *_, methods in file.given for name in methods
             if functions[name] == 1}
    for file in files:
        own = file.own
        wrong = [(line, f"imports {'::'.join(('crate', *path))} of {layers.names[layers.of(path)]}, "
                        f"which is {why}")
                 for line, path in file.imports if (why := layers.wrong(own, layers.of(path)))]
        wrong += [(line, f"gives methods to {name} of {layers.names[other]}")
                  for line, name, other, _ in file.given if not layers.are_in_one(own, other)]
        wrong += [(line, f"calls {name} of {layers.names[given[name]]}, which is {why}")
                  for line, name in calls(file.source)
                  if name in given and (why := layers.wrong(own, given[name]))]
        found += [f"{folder.name}/{file.path.relative_to(folder)}:{line}: {layers.names[own]} {what}"
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
