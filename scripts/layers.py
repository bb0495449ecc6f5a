#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Checks that no file of rust/ imports from a layer above its own, by the list in rust/layers; and that the
files of sdpctl have no circular imports.

usage: layers.py [--write]

Each path in the code that begins with crate, super or self is an import. A layer marked with "=" is at the
level of the layers above it, up to the first layer without the mark; layers at the same level do not import
from each other.

An `impl` that adds methods to a type of another layer is also refused, also by another name of the type: the
other layer, and the layers between, could call the methods without an import. A trait of a lower layer may
be implemented. `*` imports from another layer are refused, because they hide names.

Documentation/overview.rst must contain the list; --write puts it there. Each function that the page names
with its file must exist.
"""

import re
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
# The module path of the crate's root is empty.
ROOT = "ib_sdp_main"
IGNORED = re.compile(r"""//[^\n]*|/\*.*?\*/|\br(#*)".*?"\1|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])'""", re.DOTALL)
USE = re.compile(r"\buse\s+([^;]+);")
PATH = re.compile(r"\b(?:crate|super|self)(?:\s*::\s*\w+)+")
IMPL = re.compile(r"^[ \t]*(?:unsafe\s+)?impl(?:<[^{]*?>)?\s+(?:\w+\s*::\s*)*(\w+)(?:<[^{]*>)?\s*"
                  r"(?:where\b[^{]*)?\{", re.MULTILINE)
METHOD = re.compile(r"\bfn\s+(?:r#)?(\w+)")
ALIAS = re.compile(r"\btype\s+(\w+)\s*(?:<[^;{]*?>)?\s*=\s*(?:\w+\s*::\s*)*(\w+)\s*[<;]")
RENAMED = re.compile(r"\b(\w+)\s+as\s+(\w+)")
VISIBLE_IN = re.compile(r"\bpub\s*\(\s*in\b[^)]*\)")
MODULE = re.compile(r"\bmod\s+(\w+)\s*\{")
NAMED = re.compile(r"``(\S+\.rs):\s+(\w+)``")
SHOWN = re.compile(r"(?<=^\.\. layers\n\n::\n\n).*?(?=\n^\S)", re.DOTALL | re.MULTILINE)

Module = tuple[str, ...]
# The type that a path stands for, and the type's layer.
Aliases = dict[Module, tuple[str, int]]


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
        """The layer of a module; for a module that contains layers, the uppermost of them. A module in no other
        layer belongs to the crate's root."""
        around = [m for m in self.modules if module[:len(m)] == m]
        inside = [m for m in self.modules if m[:len(module)] == module]
        innermost = max(around, key=len, default=())
        return self.modules.index(inside[0] if inside and innermost == () else innermost)

    def wrong(self, own: int, other: int) -> str:
        """The reason why a layer must not use another one; empty if it may."""
        first, last = min(own, other), max(own, other)
        if own != other and all(self.beside[first + 1:last + 1]):
            return "beside it"
        return "above it" if other < own else ""


def code_of(source: str) -> str:
    """The source without comments, literals and visibilities, with the same line numbers."""
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
    """The end of the block that begins behind a brace."""
    depth, end = 1, begin
    while depth and end < len(code):
        depth += {"{": 1, "}": -1}.get(code[end], 0)
        end += 1
    return end


def inline_modules(code: str) -> list[tuple[int, int, str]]:
    """The begin, the end and the name of each module inside a file; outer modules first."""
    return [(match.end(), end_of(code, match.end()), match[1]) for match in MODULE.finditer(code)]


def imports(source: str, file_module: Module) -> list[tuple[int, Module]]:
    """The imports of a file: line, and path from the crate's root."""
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
        # Of `*`, the star remains, for the callers.
        names = tuple(word for word in words if word != "self")
        found.append((code.count("\n", 0, at) + 1, module + names))
    return found


class File:
    """A file with its layer."""

    def __init__(self, path: Path, module: Module, own: int, layers: Layers):
        self.path, self.own, self.module, self.layers = path, own, module, layers
        source = path.read_text()
        self.code = code_of(source)
        found = imports(source, module)
        self.imports = [(line, tuple(n for n in names if n != "*")) for line, names in found]
        self.globs = [line for line, names in found
                      if names[-1:] == ("*",) and layers.of(names[:-1]) != own]

    def names(self, aliases: Aliases) -> Aliases:
        """What the names in the file stand for: a type, and its layer. `aliases` are those of all files."""
        known: Aliases = {names[-1:]: aliases.get(names, (names[-1], self.layers.of(names)))
                          for _, names in self.imports if names}
        others = RENAMED.findall(self.code) + [(old, new) for new, old in ALIAS.findall(self.code)]
        # One alias may stand for another one.
        for _ in others:
            known |= {(new,): known[(old,)] for old, new in others if (old,) in known}
        return known

    def aliases(self, known: Aliases) -> Aliases:
        """The aliases that the file defines, by their paths. `known` are those of all files that are known."""
        names = self.names(known)
        return {(*self.module, new): names[(new,)] for new, _ in ALIAS.findall(self.code) if (new,) in names}

    def given(self, aliases: Aliases) -> list[tuple[int, str, int]]:
        """The types of other layers that get methods here: the line, the type, its layer."""
        names = self.names(aliases)
        found = []
        for match in IMPL.finditer(self.code):
            name, layer = names.get((match[1],), (match[1], self.own))
            if layer != self.own:
                found.append((self.code.count("\n", 0, match.start(1)) + 1, name, layer))
        return found


def complaints(layers: Layers, folder: Path) -> list[str]:
    """The errors in the files of a folder."""
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
    aliases: Aliases = {}
    # An alias may stand for an alias of another file.
    while (more := {path: of for file in files for path, of in file.aliases(aliases).items()}) != aliases:
        aliases = more
    for file in files:
        own = file.own
        wrong = [(line, (f"imports {'::'.join(('crate', *path))} of {layers.names[layers.of(path)]}, "
                         f"which is {why}"))
                 for line, path in file.imports if (why := layers.wrong(own, layers.of(path)))]
        wrong += [(line, f"gives methods to {name} of {layers.names[other]}")
                  for line, name, other in file.given(aliases)]
        wrong += [(line, "imports * of another layer") for line in file.globs]
        found += [f"{folder.name}/{file.path.relative_to(folder)}:{line}: {layers.names[own]} {what}"
                  for line, what in sorted(set(wrong))]
    return found


def without_tests(code: str) -> str:
    """The code without modules named `tests`."""
    for begin, end, name in reversed(inline_modules(code)):
        if name == "tests":
            code = code[:begin] + code[end - 1:]
    return code


def circle(uses: dict[str, set[str]]) -> list[str]:
    """The names that use each other in a circle."""
    # Repeatedly remove names that use no other name, or that no other name uses.
    while ends := {name for name, others in uses.items() if not others & set(uses) - {name}}:
        uses = {name: others for name, others in uses.items() if name not in ends}
    while begins := set(uses) - {o for name, others in uses.items() for o in others if o != name}:
        uses = {name: others for name, others in uses.items() if name not in begins}
    return sorted(uses)


def circles(folder: Path) -> list[str]:
    """Circular imports between the files and folders of each folder of a program. A folder counts as one file."""
    files: dict[Module, set[Module]] = {}
    for path in folder.rglob("*.rs"):
        module = path.relative_to(folder).with_suffix("").parts
        code = without_tests(code_of(path.read_text()))
        files[module] = {names for _, names in imports(code, module)}
    found = []
    for place in sorted({module[:depth] for module in files for depth in range(len(module))}):
        depth = len(place)
        uses: dict[str, set[str]] = {}
        for module, imported in files.items():
            if module[:depth] == place and len(module) > depth:
                names = {other[depth] for other in imported if other[:depth] == place and len(other) > depth}
                uses.setdefault(module[depth], set()).update(names)
        if names_of_circle := circle(uses):
            inside = folder.joinpath(*place).relative_to(TOP)
            found.append(f"{inside}: a circle of {', '.join(names_of_circle)}")
    return found


def missing_functions(page: str, top: Path) -> list[str]:
    """The functions that a page names as ``FILE: NAME`` but that the file does not contain."""
    found = []
    for name, function in NAMED.findall(page):
        path = top / name
        if not path.exists() or function not in METHOD.findall(code_of(path.read_text())):
            found.append(f"there is no {function} in {name}")
    return found


def main() -> int:
    layers = Layers((TOP / "rust/layers").read_text())
    page = TOP / "Documentation/overview.rst"
    text = page.read_text()
    new = SHOWN.sub(lambda _: layers.shown, text)
    found = complaints(layers, TOP / "rust")
    for program in ("sdpctl", "selftest"):
        found += circles(TOP / "tools" / program / "src")
    found += [f"Documentation/overview.rst: {what}" for what in missing_functions(text, TOP)]
    if "--write" in sys.argv:
        page.write_text(new)
    elif layers.shown not in text:
        found.append("Documentation/overview.rst does not show rust/layers: scripts/layers.py --write")
    print("".join(line + "\n" for line in found), end="")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
