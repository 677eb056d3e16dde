"""Names of functions, the classes of headers, and what comments name."""
import unittest

from fixture import LintTest
import names


class FunctionTest(LintTest):
    def test_a_function_that_ends_in_of_is_found_once(self):
        text = "class A {\n  int LeaseOf(int a) { return a; }\n  int Prooof();\n};\nint IsOneOf(int a);\n"
        self.expect(names.check_names(self.project({"a.h": text})), ("a.h", 2, "call it LeaseFor"))


class HeaderTest(LintTest):
    def test_a_class_of_another_name_is_found_and_one_of_this_name_is_not(self):
        text = "class Lane {\n  int a_;\n};\nclass Shard {\n  int a_;\n};\n"
        project = self.project({"server/lane.h": text, "server/other.cc": "Shard shard;\n"})
        self.expect(names.check_names(project), ("server/lane.h", 4, "Shard is not the class"))
        project = self.project({"server/lanes.h": text, "server/other.cc": "Shard shard; Lane lane;\n"})
        self.expect(names.check_names(project),
                    ("server/lanes.h", 1, "Lane is not"), ("server/lanes.h", 4, "Shard is not"))

    def test_a_class_that_only_the_source_names_is_a_part(self):
        text = "class Lane {\n  int a_;\n};\nclass LanePart {\n  int a_;\n};\n"
        self.expect(names.check_names(self.project({"server/lane.h": text, "server/lane.cc": "LanePart part;\n",
                                                    "tests/server/lane_test.cc": "LanePart part;\n"})))

    def test_records_and_interfaces_stand_beside_the_class_that_names_them(self):
        beside = ("struct Size {\n  int rows;\n};\nstruct Options {\n  Size size;\n};\n"
                  "class Port {\n public:\n  virtual void Send() = 0;\n};\n")
        text = beside + "class Lane {\n  Lane(const Options& options, Port& port);\n  int a_;\n};\n"
        user = "Size size; Options options; Port* port;\n"
        self.expect(names.check_names(self.project({"a/lane.h": text, "b.cc": user})))
        text = text.replace("const Options& options, Port& port", "")
        self.expect(names.check_names(self.project({"a/lane.h": text, "b.cc": user})),
                    ("a/lane.h", 1, "Size"), ("a/lane.h", 4, "Options"), ("a/lane.h", 7, "Port"))

    def test_a_header_without_a_class_is_named_after_the_subject_of_its_records(self):
        text = "struct Row {\n  int a;\n};\nstruct Column {\n  int b;\n};\nint Sum(const Row& row);\n"
        self.expect(names.check_names(self.project({"a/table.h": text, "b.cc": "Column column;\n"})))

    def test_headers_of_tests_are_free(self):
        self.expect(names.check_names(self.project({"tests/a/fixture.h": "class Lane {\n  int a_;\n};\n"})))


class MentionTest(LintTest):
    def test_a_file_that_does_not_exist_is_found_at_its_line(self):
        text = "// See a/b.h, b.h, zmq.h.\n//\n// Not a/c.h, nor c.cc.\nint a = \"d.cc\";\n"
        self.expect(names.check_names(self.project({"a/a.cc": text, "a/b.h": ""})),
                    ("a/a.cc", 3, "a/c.h does not exist"), ("a/a.cc", 3, "c.cc does not exist"))

    def test_a_file_that_the_build_makes_exists(self):
        self.expect(names.check_names(self.project({"a/a.cc": "// d.h\n", "a/meson.build": "output: 'd.h'\n"})))

    def test_documents_name_paths_without_a_suffix(self):
        self.expect(names.check_names(self.project({"a/b.h": "", "docs/a.md": "`a/b` `runs/b`\n`a/c`\n"})),
                    ("docs/a.md", 2, "a/c does not exist"))

    def test_a_rule_that_the_protocol_lacks_is_found(self):
        self.expect(names.check_names(self.project({"a/a.cc": "// P4, P100 and P5.\n",
                                                    "docs/protocol.md": "- **P4** A worker waits.\n"})),
                    ("a/a.cc", 1, "P5 does not exist"))


if __name__ == "__main__":
    unittest.main()
