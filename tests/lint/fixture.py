"""A small project in a temporary folder, for the tests of tools/lint."""
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools" / "lint"))

from project import Project  # noqa: E402  the path must be set first


class LintTest(unittest.TestCase):
    def project(self, files):
        """`files`: {path: text}"""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for path, text in files.items():
            target = Path(folder.name, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        return Project(folder.name)

    def expect(self, findings, *expected):
        """`expected`: (path, line, part of the message) of each finding, in order."""
        self.assertEqual([(found.path, found.line) for found in findings],
                         [(path, line) for path, line, _ in expected])
        for found, (_, _, part) in zip(findings, expected):
            self.assertIn(part, found.what)
