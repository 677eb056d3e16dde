"""tools/lint/lint.py as a whole: what it prints, and its exit status."""
import contextlib
import io
import unittest

from fixture import LintTest
import lint

LONG = "void Grow() {\n" + "  Do();\n" * 70 + "}\n"


class LintProgramTest(LintTest):
    def run_lint(self, files, *arguments):
        """Exit status, and what is printed."""
        self.root = self.project(files).root
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = lint.main(["--root", str(self.root), *arguments])
        return status, out.getvalue() + err.getvalue()

    def test_a_finding_is_one_line_and_fails(self):
        status, printed = self.run_lint({"common/a.cc": LONG}, "functions", "layers")
        self.assertEqual(status, 1)
        self.assertIn("common/a.cc:1: Grow has 72 lines, at most 70 are allowed: move parts", printed)
        self.assertIn("lint: 1 findings, 0 exceptions", printed)

    def test_a_listed_finding_does_not_fail(self):
        files = {"common/a.cc": LONG, lint.EXCEPTIONS: "functions common/a.cc:Grow 72 to be split\n"}
        status, printed = self.run_lint(files, "functions")
        self.assertEqual(status, 0)
        self.assertIn("lint: 0 findings, 1 exceptions", printed)

    def test_the_report_does_not_fail(self):
        status, printed = self.run_lint({"common/a.cc": LONG, "docs/a.md": "lest\n"}, "--report")
        self.assertEqual(status, 0)
        for row in ("lines of product C++ +72 +0", "lines of a function: over the limit +1 +0", "phrases +1 +0"):
            self.assertRegex(printed, row.replace("C++", r"C\+\+"))

    def test_shrinking_writes_the_list(self):
        files = {"common/a.cc": LONG, lint.EXCEPTIONS: "functions common/a.cc:Grow 90 to be split\n"}
        status, _ = self.run_lint(files, "--shrink", "functions")
        self.assertEqual(status, 0)
        self.assertIn(" 72  to be split", (self.root / lint.EXCEPTIONS).read_text(encoding="utf-8"))

    def test_a_named_check_that_cannot_run_is_skipped_loudly(self):
        status, printed = self.run_lint({"common/a.cc": ""}, "tidy")
        self.assertEqual(status, lint.SKIPPED)
        self.assertIn("SKIPPED tidy", printed)

    def test_an_unknown_check_is_refused(self):
        with self.assertRaises(SystemExit):
            self.run_lint({}, "spelling")


if __name__ == "__main__":
    unittest.main()
