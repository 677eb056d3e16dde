"""Limits of classes, functions, files, folders, the product, the documents."""
import unittest

from fixture import LintTest
import limits


def declare(kind, name, methods, members):
    lines = [f"{kind} {name} {{", " public:"]
    lines += [f"  int Get{index}(int a, int b) const;" for index in range(methods)]
    lines += [f"  std::map<int, int> member{index}_ = {{}};" for index in range(members)]
    return "\n".join(lines + ["};", ""])


class ClassTest(LintTest):
    def test_a_class_at_both_limits_is_accepted(self):
        project = self.project({"server/a.h": declare("class", "Lane", 30, 20)})
        self.expect(limits.check_classes(project))

    def test_a_class_over_a_limit_is_found_at_its_line(self):
        project = self.project({"server/a.h": "\n" + declare("class", "Lane", 31, 21)})
        self.expect(limits.check_classes(project),
                    ("server/a.h", 2, "Lane has 31 methods, at most 30"),
                    ("server/a.h", 2, "Lane has 21 data members, at most 20"))

    def test_private_methods_constructors_and_constants_count(self):
        body = declare("class", "Lane", 29, 19).replace("};\n", " private:\n  Lane();\n  void Send();\n"
                                                        "  static constexpr int kMax = 3;\n  int a_, b_;\n};\n")
        self.expect(limits.check_classes(self.project({"a.h": body})),
                    ("a.h", 1, "31 methods"), ("a.h", 1, "22 data members"))

    def test_defaulted_and_deleted_functions_do_not_count(self):
        body = declare("class", "Lane", 30, 0).replace("};\n", "  Lane(const Lane&) = delete;\n"
                                                       "  ~Lane() = default;\n};\n")
        self.expect(limits.check_classes(self.project({"a.h": body})))

    def test_a_plain_struct_may_have_many_members(self):
        self.expect(limits.check_classes(self.project({"a.h": declare("struct", "Job", 0, 50)})))

    def test_a_struct_with_methods_counts_as_a_class(self):
        self.expect(limits.check_classes(self.project({"a.h": declare("struct", "Job", 4, 21)})),
                    ("a.h", 1, "21 data members"))

    def test_a_struct_that_two_classes_may_change_counts_as_a_class(self):
        shared = declare("struct", "State", 0, 21)
        reader = "class {} {{\n  const State& state_;\n}};\n"
        writer = "class {} {{\n  State& state_;\n}};\n"
        one = shared + writer.format("A") + reader.format("B")
        two = shared + writer.format("A") + writer.format("B")
        self.expect(limits.check_classes(self.project({"a.h": one})))
        self.expect(limits.check_classes(self.project({"a.h": two})), ("a.h", 1, "shared by A, B,"))

    def test_field_visitors_are_exempt(self):
        self.expect(limits.check_classes(self.project({"a.h": declare("class", "CodecReader", 60, 0)})))


class FunctionTest(LintTest):
    def function(self, name, lines):
        return f"void {name}() {{\n" + "  Do();\n" * (lines - 2) + "}\n"

    def test_a_function_of_70_lines_is_accepted_and_one_of_71_is_not(self):
        text = self.function("Fits", 70) + self.function("Lane::Grow", 71)
        self.expect(limits.check_functions(self.project({"a.cc": text})),
                    ("a.cc", 71, "Lane::Grow has 71 lines"))

    def test_constructors_tests_and_methods_in_a_class_are_functions(self):
        body = "{\n" + "  Do();\n" * 70 + "}\n"
        text = ("A::A(int a)\n    : a_{a}, b_(a) " + body + 'TEST_CASE("a { ; b") ' + body
                + "class B {\n  bool operator==(const B& b) const noexcept " + body + "};\n")
        self.expect(limits.check_functions(self.project({"a.cc": text})),
                    ("a.cc", 1, "A::A"), ("a.cc", 74, "TEST_CASE"), ("a.cc", 147, "B::operator=="))

    def test_comments_strings_and_directives_hold_no_brackets(self):
        text = ("#define OPEN {\n// {\n/* { */ const char* a = \"{\";\nconst char b = '{';\n"
                "const char* c = R\"x({)\" {)x\";\nint d = 1'000;\nvoid F() {}\n")
        self.expect(limits.check_functions(self.project({"a.cc": text})))

    def test_brackets_that_do_not_match_are_found(self):
        text = "#if A\nvoid F() {\n#else\nvoid G() {\n#endif\n}\n"
        self.expect(limits.check_functions(self.project({"a.cc": text})), ("a.cc", 1, "do not match"))


class FileTest(LintTest):
    def test_a_file_of_600_lines_is_accepted_and_one_of_601_is_not(self):
        project = self.project({"a.cc": "\n" * 600, "b.py": "\n" * 601, "c.txt": "\n" * 900})
        self.expect(limits.check_files(project), ("b.py", 1, "601 lines"))

    def test_a_folder_of_40_files_is_accepted_and_one_of_41_is_not(self):
        files = {f"a/{index}.h": "" for index in range(40)} | {f"b/{index}.h": "" for index in range(41)}
        self.expect(limits.check_files(self.project(files)), ("b", 1, "41 files"))


class SizeTest(LintTest):
    def test_tests_blank_lines_and_comments_are_told_from_code(self):
        project = self.project({"a.cc": "// c\n\nint a;  // c\n/* c\n   c */\nint b;\n", "tests/b.cc": "int c;\n"})
        self.assertEqual(limits.product_lines(project), {"lines": 6, "code": 2, "comments": 3})

    def test_a_folder_over_its_budget_is_found(self):
        files = {"a/b.cc": "int a;\n\n", "c/d.cc": "int c;\n"}
        within = self.project({**files, limits.BUDGET: "# figures\na 2 1\nc 1 1\n"})
        self.expect(limits.check_size(within))
        over = self.project({**files, limits.BUDGET: "a 1 1\nc 1 0\ne 5 5\n"})
        self.expect(limits.check_size(over), (limits.BUDGET, 1, "e/ has no product C++"),
                    (limits.BUDGET, 1, "a/ has 2 lines of product C++ (lines), its budget is 1"),
                    (limits.BUDGET, 1, "c/ has 1 lines of product C++ (code), its budget is 0"))
        self.expect(limits.check_size(self.project({"a/b.cc": "int a;\n"})),
                    (limits.BUDGET, 1, "its budget is 0"), (limits.BUDGET, 1, "its budget is 0"))

    def test_a_budget_shrinks_to_what_its_folders_have(self):
        project = self.project({"a/b.cc": "int a;\n\n", limits.BUDGET: "# figures\na 9 0\ne 5 5\n"})
        self.assertEqual(limits.read_budget(limits.shrunk_budget(project)), {"a": (2, 0)})
        self.assertTrue(limits.shrunk_budget(project).startswith("# figures\n"))


class DocsTest(LintTest):
    def test_too_many_words_and_lines_are_found(self):
        project = self.project({"docs/a.md": "word " * (limits.DOCS_WORDS_MAX + 1), "README.md": "\n" * 181})
        self.expect(limits.check_docs(project), ("docs", 1, f"{limits.DOCS_WORDS_MAX + 1} words"),
                    ("README.md", 1, "181 lines"))

    def test_a_line_with_too_many_columns_is_found(self):
        project = self.project({"README.md": "ü" * 100 + "\n" + "ü" * 101 + "\n"})
        self.expect(limits.check_docs(project), ("README.md", 2, "101 columns"))

    def test_documents_at_the_limits_are_accepted(self):
        project = self.project({"docs/a.md": "word " * limits.DOCS_WORDS_MAX,
                                "README.md": ("x" * 100 + "\n") * 180, "b.md": "word"})
        self.expect(limits.check_docs(project))


if __name__ == "__main__":
    unittest.main()
