"""The list of exceptions: it hides what it names, and nothing else."""
import unittest

from fixture import LintTest
from findings import Exceptions, Finding


def make(path, size=1, check="methods", name=""):
    return Finding(check, path, 7, "what", name, size)


def read(*lines):
    return Exceptions("exceptions.txt", "\n".join(["# CHECK WHERE AT_MOST REASON", *lines]) + "\n")


class ExceptionsTest(LintTest):
    def test_a_listed_finding_is_hidden_up_to_its_size(self):
        exceptions = read("methods a.h:Lane 40 to be split")
        self.expect(exceptions.apply(["methods"], [make("a.h", 40, name="Lane")]))
        self.expect(exceptions.apply(["methods"], [make("a.h", 41, name="Lane")]), ("a.h", 7, "what"))

    def test_other_files_names_and_checks_are_not_hidden(self):
        exceptions = read("methods a.h:Lane 40 to be split")
        hidden = make("a.h", name="Lane")
        others = [make("b.h", name="Lane"), make("a.h", name="Shard"), make("a.h", check="members", name="Lane")]
        self.assertEqual(exceptions.apply(["methods"], [hidden, *others]), others)

    def test_all_findings_of_a_file_are_shown_when_they_are_more_than_allowed(self):
        exceptions = read("phrases a.h 1 to be reworded")
        findings = [make("a.h", check="phrases"), make("a.h", check="phrases")]
        self.assertEqual(exceptions.apply(["phrases"], findings), findings)

    def test_an_exception_that_is_not_needed_is_a_finding(self):
        exceptions = read("methods a.h:Lane 40 to be split")
        self.expect(exceptions.apply(["methods"], []), ("exceptions.txt", 2, "no longer needed"))
        self.expect(exceptions.apply(["docs"], []))  # its check did not run

    def test_a_line_that_is_not_complete_is_a_finding(self):
        self.expect(read("methods a.h:Lane 40").apply([], []), ("exceptions.txt", 2, "complete the line"))

    def test_shrinking_drops_and_lowers_and_keeps_the_rest(self):
        exceptions = read("methods a.h 40 to be split", "methods b.h 40 to be split", "docs c.md 9 too long")
        shrunk = exceptions.shrunk(["methods"], [make("a.h", 35)])
        self.assertEqual([line.split() for line in shrunk.splitlines()[1:]],
                         [["methods", "a.h", "35", "to", "be", "split"], ["docs", "c.md", "9", "too", "long"]])

    def test_accepting_adds_and_raises_and_keeps_the_rest(self):
        exceptions = read("methods a.h 40 to be split")
        grown = exceptions.grown([make("a.h", 45), make("b.h", 31, name="Lane")], "moved")
        self.assertEqual([line.split() for line in grown.splitlines()[1:]],
                         [["methods", "a.h", "45", "to", "be", "split"], ["methods", "b.h:Lane", "31", "moved"]])
        self.assertEqual(Exceptions("", grown).apply(["methods"], [make("a.h", 45), make("b.h", 31, name="Lane")]), [])


if __name__ == "__main__":
    unittest.main()
