"""tools/test_report.py: what it makes of Meson's files."""
import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import test_report  # noqa: E402  the path comes first


def doctest_log(name, passed, failed, seconds=1.0):
    totals = f"[doctest] test cases: {passed + failed} | {passed} passed | {failed} failed | 0 skipped"
    return {"name": f"pando:unit / {name}", "stdout": totals, "stderr": "", "duration": seconds,
            "result": "FAIL" if failed else "OK"}


class SummaryTest(unittest.TestCase):
    def summarise(self, tests, *words):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder, "testlog.json")
            log.write_text("\n".join(map(json.dumps, tests)), encoding="utf-8")
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                failed = test_report.summarise([*words, str(log)])
            return failed, printed.getvalue().splitlines()

    def test_cases_are_counted(self):
        failed, lines = self.summarise([doctest_log("a", 3, 0), doctest_log("b", 4, 2)])
        self.assertEqual((failed, lines[-1]), (2, "7 passed, 2 failed"))

    def test_a_filter_that_matches_no_case_is_a_failure(self):
        self.assertEqual(self.summarise([doctest_log("a", 0, 0)])[0], 1)

    def test_a_build_that_fails_is_a_failure(self):
        self.assertEqual(self.summarise([doctest_log("a", 3, 0)], "broken:test_release")[0], 1)

    def test_the_slowest_tests_and_the_parts_are_listed(self):
        tests = [doctest_log(f"t{i}", 1, 0, i) for i in range(20)]
        lines = self.summarise(tests, "compile=60", "test=10", "test=5", "ccache=3/4")[1]
        self.assertIn("    19.0 s  t19", lines)
        self.assertNotIn("     9.0 s  t9", lines)
        self.assertEqual(lines[-2], "seconds: compile 60, test 15, ccache 3/4 hits")

    def test_a_run_of_more_than_25_minutes_is_warned_of_in_the_line_before_the_last(self):
        lines = self.summarise([doctest_log("a", 1, 0)], "compile=1400", "test=101")[1]
        self.assertTrue(lines[-2].startswith("warning: this took 25 minutes"), lines)


class SliceTest(unittest.TestCase):
    def test_commits_choose_among_the_thorough_tests_alone(self):
        tests = [{"name": "a", "suite": ["pando:e2e", "pando:thorough"]}, {"name": "b", "suite": ["pando:unit"]},
                 {"name": "c", "suite": ["pando:thorough"]}]
        chosen = {test_report.choose_slice(commit, tests) for commit in ("0", "1", "abcdef0123456789")}
        self.assertEqual(chosen, {"a", "c"})


if __name__ == "__main__":
    unittest.main()
