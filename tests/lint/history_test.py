"""Commits have a body, and limits rise alone."""
import subprocess
import unittest

from fixture import LintTest
import history
import limits
import programs

EXCEPTIONS = "tools/lint/exceptions.txt"


class HistoryTest(LintTest):
    def setUp(self):
        self.repository = self.project({"common/a.h": "1", EXCEPTIONS: "size  .:code  48000  a feature\n"})
        self.git("init", "--quiet")
        self.first = self.commit("build: begin", "Why.")

    def git(self, *arguments):
        subprocess.run(["git", "-C", str(self.repository.root), "-c", "user.name=A", "-c", "user.email=a@b",
                        *arguments], check=True, capture_output=True)

    def commit(self, subject, body, **files):
        for path, text in files.items():
            target = self.repository.root / {"limits": EXCEPTIONS, "code": "common/a.h", "budget": limits.BUDGET}[path]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", f"{subject}\n\n{body}")
        return self.repository.git("rev-parse", "HEAD").strip()

    def check(self):
        return history.check_history(self.repository, self.first)

    def test_a_commit_without_a_body_is_found(self):
        self.commit("common: more", "Why, and how tested.", code="2")
        self.expect(self.check())
        self.commit("common: less", "", code="3")
        self.expect(self.check(), (".", 1, "common: less has no body"))

    def test_a_limit_rises_alone(self):
        self.commit("lint: room", "For the wheel.", limits="size .:code 48100 the wheel\n")
        self.commit("lint: tighter", "Less code.", limits="size .:code 47000 the wheel\n", code="2")
        self.expect(self.check())
        self.commit("common: grow", "Why.", limits="size .:code 47001 the wheel\n", code="3")
        self.expect(self.check(), (EXCEPTIONS, 1, "raises size .:code and changes other files"))

    def test_a_new_exception_is_a_rise(self):
        self.commit("common: grow", "Why.", code="3",
                    limits="size .:code 48000 a feature\nfiles common/a.h 601 to be split\n")
        self.expect(self.check(), (EXCEPTIONS, 1, "raises files common/a.h"))

    def test_a_budget_rises_by_a_figure_that_the_commit_names(self):
        self.commit("lint: a budget", "Why.", budget="common 100 80\n", code="2")
        self.commit("common: less", "Why.", budget="common 90 70\n", code="3")
        self.commit("lint: room", "common/ by 30 lines for issue 99.", budget="common 120 70\n")
        self.expect(self.check())
        self.commit("lint: more", "common/ by 20 lines.", budget="common 140 70\n")
        self.commit("lint: most", "common/ by 20 lines for issue 99.", budget="common 161 70\n")
        self.expect(self.check(), (limits.BUDGET, 1, "raises the budget common lines by 20"),
                    (limits.BUDGET, 1, "raises the budget common lines by 21"))
        self.commit("common: grow", "common/ by 1 line for issue 99.", budget="common 161 71\n", code="4")
        self.assertIn("budget common code and changes other files", self.check()[-1].what)

    def test_another_history_is_skipped(self):
        with self.assertRaises(programs.Skipped):
            history.check_history(self.repository, "0" * 40)


if __name__ == "__main__":
    unittest.main()
