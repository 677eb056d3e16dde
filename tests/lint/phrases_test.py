"""Phrases that need a second reading are found in all texts for people."""
import unittest

from fixture import LintTest
import phrases


class PhrasesTest(LintTest):
    def test_comments_and_strings_of_cpp_are_read(self):
        text = ('#include "whoever/a.h"\nint whoever = 1;  // Whoever asks\n'
                'Fail("sent to nobody");\n/* drawn\n   anew */\nconst char* a = R"(as\never)";\n')
        self.expect(phrases.check_phrases(self.project({"a.cc": text})), ("a.cc", 2, '"Whoever"'),
                    ("a.cc", 5, '"anew"'), ("a.cc", 3, '"nobody"'), ("a.cc", 6, '"as ever"'))

    def test_a_phrase_over_two_lines_is_found(self):
        project = self.project({"a.h": "int a;\n// The sum is made\n// up for.\n",
                                "b.cc": 'Print("as "\n      "ever");\n', "c.py": "# but\n# for\n"})
        self.expect(phrases.check_phrases(project), ("a.h", 2, "made up for"), ("b.cc", 1, "as ever"),
                    ("c.py", 1, "but for"))

    def test_documents_scripts_and_build_files_are_read(self):
        project = self.project({"docs/a.md": "one\nlest two\n", "b.sh": "# in peace\n", "c.py": '"""likewise"""\n',
                                "meson.build": "# unasked\n", "d.bin": "lest"})
        self.expect(phrases.check_phrases(project), ("b.sh", 1, "in peace"), ("c.py", 1, "likewise"),
                    ("docs/a.md", 2, "lest"), ("meson.build", 1, "unasked"))

    def test_a_comment_begins_with_its_subject(self):
        project = self.project({"a.h": "// Of a lane.\nint a;  // of what it has\n/// What b is.\nint b;\n",
                                "b.py": '"""What it does."""\n# Of c.\nD = "What"\n', "c.sh": "#!/bin/sh\n# What d\n",
                                "d.md": "What it is.\n", "e.cc": 'Print("What");\nint offer;\n// Offers of it\n'})
        self.expect(phrases.check_phrases(project), ("a.h", 1, '"Of"'), ("a.h", 3, '"What"'), ("b.py", 1, '"What"'),
                    ("b.py", 2, '"Of"'), ("c.sh", 2, '"What"'))

    def test_parts_of_words_are_not_phrases(self):
        project = self.project({"a.md": "the blest, whole, then; theory; butterfly for\n"})
        self.expect(phrases.check_phrases(project))

    def test_each_phrase_of_the_list_has_an_advice(self):
        listed = phrases.read_phrases(phrases.LIST.read_text(encoding="utf-8"))
        self.assertGreater(len(listed), 20)
        for _, advice in listed:
            self.assertNotEqual(advice, "")


if __name__ == "__main__":
    unittest.main()
