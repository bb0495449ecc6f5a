# SPDX-License-Identifier: GPL-2.0
"""Tests of what the shell scripts have in common (scripts/env.sh)."""

import subprocess
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).parents[1]


class Help(unittest.TestCase):
    """`--help` prints the comment at the top of a script, and does nothing else."""

    def test_each_script_that_has_options(self) -> None:
        asked = []
        for script in SCRIPTS.iterdir():
            if not script.is_file() or script.name == "env.sh":
                continue
            text = script.read_text(encoding="utf-8")
            if "scripts/env.sh\n. " not in text:
                continue
            asked.append(script.name)
            with self.subTest(script.name):
                done = subprocess.run([script, "--help"], capture_output=True, check=False, text=True, timeout=20)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                first = text.splitlines()[2].removeprefix("# ")
                self.assertEqual(done.stdout.splitlines()[0], first)
        self.assertIn("distclean", asked)
        self.assertGreater(len(asked), 15)


if __name__ == "__main__":
    unittest.main()
