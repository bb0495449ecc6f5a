# SPDX-License-Identifier: GPL-2.0
"""The check of the layers: an import from a higher layer must be found in every spelling."""

import tempfile
import unittest
from pathlib import Path

import layers

LIST = """# A comment.
ib_sdp_main  the root
sdp::send    sends
sdp::guard   the lock
kern         errors
"""
FILES = ["ib_sdp_main.rs", "sdp.rs", "sdp/send.rs", "sdp/guard.rs", "kern.rs"]


def complaints(name: str, source: str, text: str = LIST, more: dict[str, str] | None = None) -> list[str]:
    """The complaints about a tree with this source in the file `name`, the files `more`, and this list."""
    sources = {name: source, **(more or {})}
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top) / "rust"
        for file in {*FILES, *sources}:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(sources.get(file, ""))
        return layers.complaints(layers.Layers(text), folder)


class Circles(unittest.TestCase):
    def check(self, sources: dict[str, str], *circle: str, inside: str = "") -> None:
        with tempfile.TemporaryDirectory(dir=layers.TOP) as top:
            for name, source in sources.items():
                (Path(top) / name).parent.mkdir(exist_ok=True)
                (Path(top) / name).write_text(source)
            found = layers.circles(Path(top))
            wanted = [f"{Path(top).name}{inside}: a circle of {', '.join(circle)}"] if circle else []
            self.assertEqual(found, wanted)

    def test_a_tree(self) -> None:
        self.check({"main.rs": "use crate::a;\n", "a.rs": "use crate::b::{c, d};\nuse self::e;\n", "b.rs": ""})

    def test_a_circle(self) -> None:
        files = {"main.rs": "use crate::a;\n", "a.rs": "use crate::b;\n", "b.rs": "",
                 "c.rs": "fn f() { crate::a::f() }"}
        self.check(files)
        self.check({**files, "b.rs": "use crate::c;\n"}, "a", "b", "c")
        self.check({**files, "b.rs": "mod tests {\n    use crate::c;\n}\n"})

    def test_folders(self) -> None:
        self.check({"a.rs": "", "a/x.rs": "use super::y;\nuse crate::b;\n", "b.rs": "use crate::a;\n"}, "a", "b")

    def test_inside_a_folder(self) -> None:
        files = {"a.rs": "", "a/x.rs": "use super::y;\n", "a/y.rs": "use crate::b;\n", "b.rs": ""}
        self.check(files)
        self.check({**files, "a/y.rs": "use crate::a::x;\n"}, "x", "y", inside="/a")


class Walks(unittest.TestCase):
    def test_functions_are_looked_for(self) -> None:
        with tempfile.TemporaryDirectory() as top:
            (Path(top) / "a.rs").write_text("fn f() {}\n// fn g() {}\n")
            page = "``a.rs: f`` and ``a.rs: g``, then\n``b.rs:\n f``. ``a::h`` is none.\n"
            self.assertEqual(layers.missing_functions(page, Path(top)),
                             ["there is no g in a.rs", "there is no f in b.rs"])


class Imports(unittest.TestCase):
    def check(self, name: str, source: str, *wanted: str) -> None:
        self.assertEqual(complaints(name, source), [f"rust/{name}:{line}" for line in wanted])

    def test_from_below_and_from_the_own_layer(self) -> None:
        self.check("sdp/send.rs", "use super::guard::Lock;\nuse crate::kern;\nuse self::copy::Copy;\n")
        self.check("sdp/send.rs", "mod tests {\n    use super::*;\n    use super::super::guard;\n}\n")
        self.check("ib_sdp_main.rs", "use crate::{kern, sdp};\nmod kern;\n")

    def test_from_above(self) -> None:
        up = "kern imports crate::sdp::send::now of sdp::send, which is above it"
        self.check("kern.rs", "\nuse crate::sdp::send::now;\n", f"2: {up}")
        self.check("kern.rs", "use crate::sdp::{\n    send::{self, now},\n};\n",
                   "1: kern imports crate::sdp::send of sdp::send, which is above it", f"1: {up}")
        self.check("kern.rs", "fn f() {\n    super::sdp::send::now();\n}\n", f"2: {up}")
        self.check("kern.rs", "mod tests {\n    use super::super::sdp::send::now;\n}\n", f"2: {up}")
        self.check("kern.rs", "const QUOTE: u8 = b'\"';\nuse crate::sdp::send::now;\n", f"2: {up}")
        self.check("sdp/guard.rs", "use super::send as s;\n",
                   "1: sdp::guard imports crate::sdp::send of sdp::send, which is above it")

    def test_of_a_module_with_layers_inside(self) -> None:
        self.check("kern.rs", "use crate::sdp;\n",
                   "1: kern imports crate::sdp of sdp::send, which is above it")

    def test_of_the_root(self) -> None:
        self.check("kern.rs", "use crate::Module;\n",
                   "1: kern imports crate::Module of ib_sdp_main, which is above it")

    def test_not_in_comments_and_texts(self) -> None:
        self.check("kern.rs", '/// [`crate::sdp::send`]\nconst T: &str = "crate::sdp::send"; // super::sdp\n')

    def test_methods_for_another_layer(self) -> None:
        self.check("sdp/send.rs", "use crate::kern::Work;\nimpl Work<'_> {}\n",
                   "2: sdp::send gives methods to Work of kern")
        self.check("sdp/send.rs", "use crate::kern::Work;\nimpl Drop for Work<'_> {}\nimpl<T> Own<T> {}\n")

    def test_methods_for_another_layer_in_other_words(self) -> None:
        for line, given in ((2, "use super::guard::Lock;\nimpl<'a> super::guard::Lock<'a> where 'a: 'a {\n}"),
                            (2, "use super::guard::Lock as L;\nimpl L<'_> {\n fn send() {} }"),
                            (3, "mod inner {\n use super::super::guard::Lock;\n  impl Lock<'_> { fn send() {} }\n}")):
            self.check("sdp/send.rs", given, f"{line}: sdp::send gives methods to Lock of sdp::guard")
        self.check("sdp/guard.rs", "struct Lock;\nimpl Lock { fn f(&mut self) {} }\n")

    def test_methods_for_another_layer_by_an_alias(self) -> None:
        given = "sdp::send gives methods to Lock of sdp::guard"
        alias = "use super::guard::Lock;\ntype G<'a> = Lock<'a>;\n"
        self.check("sdp/send.rs", alias + "impl G<'_> { fn send() {} }\n", f"3: {given}")
        self.check("sdp/send.rs", alias + "type H<'a> = G<'a>;\nimpl H<'_> { fn send() {} }\n", f"4: {given}")
        self.check("sdp/send.rs", "type G = super::guard::Lock;\nimpl G {}\n", f"2: {given}")
        self.check("sdp/send.rs", alias + "impl Drop for G<'_> {}\n")
        self.check("sdp/send.rs", "struct Own;\ntype G = Own;\nimpl G {}\n")
        more = {"sdp/send/copy.rs": "use super::G;\nimpl G<'_> { fn send() {} }\n"}
        self.assertEqual(complaints("sdp/send.rs", alias, more=more), [f"rust/sdp/send/copy.rs:2: {given}"])

    def test_names_that_come_unseen(self) -> None:
        self.check("sdp/send.rs", "use super::guard::*;\n", "1: sdp::send imports * of another layer")
        self.check("sdp/send.rs", "use self::copy::*;\n")

    def test_raw_strings(self) -> None:
        up = "2: kern imports crate::sdp::send of sdp::send, which is above it"
        self.check("kern.rs", 'const T: &str = r"\\";\nuse crate::sdp::send;\nconst U: &str = "";\n', up)
        self.check("kern.rs", 'const T: &str = r#" "; use crate::sdp::send; "#;\n')

    def test_layers_beside_each_other(self) -> None:
        text = LIST.replace("sdp::guard", "=sdp::guard")
        self.assertEqual(complaints("sdp/send.rs", "use super::guard::Lock;\n", text),
                         [("rust/sdp/send.rs:1: sdp::send imports crate::sdp::guard::Lock of sdp::guard, "
                           "which is beside it")])
        self.assertEqual(complaints("sdp/guard.rs", "use super::send;\n", text),
                         [("rust/sdp/guard.rs:1: sdp::guard imports crate::sdp::send of sdp::send, "
                           "which is beside it")])
        self.assertEqual(complaints("sdp/guard.rs", "use crate::kern;\n", text), [])
        three = text.replace("kern  ", "=kern ")
        for name, other in ("sdp/send.rs", "kern"), ("kern.rs", "sdp::send"):
            own = name.removesuffix(".rs").replace("/", "::")
            self.assertEqual(complaints(name, f"use crate::{other};\n", three),
                             [f"rust/{name}:1: {own} imports crate::{other} of {other}, which is beside it"])

    def test_not_in_visibilities(self) -> None:
        self.check("kern.rs", "pub(in crate::sdp) fn f() {}\npub(super) fn g() {}\n")

    def test_files_and_layers_that_are_missing(self) -> None:
        self.assertEqual(complaints("other.rs", ""), ["rust/other.rs: not in rust/layers"])
        self.assertEqual(complaints("kern.rs", "", LIST + "mm  memory\n"), ["rust/layers: there is no mm"])


if __name__ == "__main__":
    unittest.main()
