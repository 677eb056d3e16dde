"""Checks by other programs. Each test is skipped where its program is not installed."""
import json
import shutil
import subprocess
import unittest
from unittest import mock

from fixture import LintTest
import programs


def needs(name):
    return unittest.skipIf(shutil.which(name) is None, f"{name} is not installed")


class FormatTest(LintTest):
    @needs("clang-format")
    def test_a_file_that_is_not_formatted_is_found_and_fixed(self):
        project = self.project({".clang-format": "BasedOnStyle: Google\n", "a.cc": "int a;\n",
                                "b.cc": "int a;\nint   b;\nint   c;\n"})
        self.expect(programs.check_format(project), ("b.cc", 2, "tools/lint.sh --fix"))
        programs.fix_format(project)
        self.expect(programs.check_format(project))


class ScriptTest(LintTest):
    @needs("flake8")
    def test_flake8_finds_an_unused_import(self):
        project = self.project({"a.py": "import os\n", "b.py": "print(1)\n"})
        self.expect(programs.check_python(project), ("a.py", 1, "F401"))

    @needs("shellcheck")
    def test_shellcheck_finds_an_unquoted_variable(self):
        project = self.project({"a.sh": "#!/bin/sh\nls $1\n", "b.sh": "#!/bin/sh\nls\n"})
        self.expect(programs.check_shell(project), ("a.sh", 2, "SC2086"))

    def test_a_missing_program_says_what_to_install(self):
        with mock.patch.object(shutil, "which", return_value=None):
            with self.assertRaisesRegex(programs.Skipped, "flake8 is not installed: run tools/setup.sh"):
                programs.check_python(self.project({"a.py": ""}))


class TidyTest(LintTest):
    def repository(self):
        project = self.project({".clang-tidy": "Checks: '-*,bugprone-suspicious-semicolon'\n",
                                ".gitignore": "build\n", "old.cc": "int old;\n"})
        self.git(project, "init", "-q")
        self.commit(project)
        return project

    def git(self, project, *arguments):
        settings = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
        subprocess.run(["git", "-C", project.root, *settings, *arguments], check=True, capture_output=True)

    def commit(self, project):
        self.git(project, "add", ".")
        self.git(project, "commit", "-q", "-m", "change")

    def add(self, project, path, text):
        (project.root / path).write_text(text, encoding="utf-8")
        build = project.root / "build"
        build.mkdir(exist_ok=True)
        entry = {"directory": str(build), "file": "../" + path, "command": f"c++ -c ../{path}"}
        (build / "compile_commands.json").write_text(json.dumps([entry]), encoding="utf-8")
        self.commit(project)
        return build

    @needs("git")
    @needs("clang-tidy")
    def test_a_changed_file_is_checked(self):
        project = self.repository()
        build = self.add(project, "new.cc", "void F(int a) {\n  if (a);\n}\n")
        said = []
        findings = programs.check_tidy(project, build, said.append)
        self.assertEqual([(found.path, found.line) for found in findings], [("new.cc", 2)])
        self.assertIn("checked 1 of 1 new files", said[0])

    @needs("git")
    @needs("clang-tidy")
    def test_files_that_there_is_no_time_for_are_named(self):
        project = self.repository()
        build = self.add(project, "new.cc", "int a;\n")
        said = []
        no_time = dict(programs.TIDY_ALL, seconds=0)
        self.assertEqual(programs.check_tidy(project, build, said.append, no_time), [])
        self.assertIn("not checked within 0 s: 1 files, first new.cc", said[1])

    @needs("git")
    def test_files_that_are_not_committed_come_first(self):
        project = self.repository()
        self.add(project, "second.cc", "int a;\n")
        (project.root / "new.cc").write_text("int b;\n", encoding="utf-8")
        (project.root / "old.cc").write_text("int c;\n", encoding="utf-8")
        self.assertEqual(programs.changed_files(project, 1), ["old.cc", "new.cc", "second.cc"])

    @needs("git")
    def test_the_oldest_commit_of_a_shallow_clone_changes_no_file(self):
        project = self.repository()
        self.add(project, "new.cc", "int a;\n")
        head = project.git("rev-parse", "HEAD").strip()
        self.assertEqual(programs.changed_files(project, 20), ["new.cc", ".clang-tidy", ".gitignore", "old.cc"])
        (project.root / ".git" / "shallow").write_text(head + "\n", encoding="utf-8")
        self.assertEqual(programs.changed_files(project, 20), [])

    @needs("clang-tidy")
    def test_a_missing_build_folder_says_what_to_run(self):
        with self.assertRaisesRegex(programs.Skipped, "run `meson setup build`"):
            programs.check_tidy(self.project({}), "/nowhere", print)

    def test_each_file_of_a_unit_has_an_entry(self):
        project = self.project({"tests/a_test.cc": "", "tests/b_test.cc": "",
                                "build/units/1.cc": '#include "tests/a_test.cc"\n#include "tests/b_test.cc"\n'})
        database = project.root / "build" / "compile_commands.json"
        entry = {"directory": str(database.parent), "file": "units/1.cc", "command": "c++ -o 1.o -c units/1.cc"}
        database.write_text(json.dumps([entry]), encoding="utf-8")
        compiled = programs.read_database(project, database)
        self.assertEqual(list(compiled), ["tests/a_test.cc", "tests/b_test.cc"])
        self.assertEqual(compiled["tests/b_test.cc"]["command"], f"c++ -o 1.o -c {project.root}/tests/b_test.cc")

    def test_a_header_is_checked_through_its_source_file(self):
        self.assertEqual(programs.choose_sources(["a/b.h", "a/b.cc", "c.py", "d.cc"]), ["a/b.cc", "d.cc"])


if __name__ == "__main__":
    unittest.main()
