"""A fixed name below the temporary folder is found in each language, and a drawn one is not."""
import unittest

from fixture import LintTest
import temporary

FIXED = {
    "a.py": ['Path(tempfile.gettempdir(), f"{folder_name}-{name}")', 'open("/tmp/loop.pickle", "wb")',
             'Path("/dev/shm") / name', "os.environ['TMPDIR'] + '/keys'", 'os.environ.get("TMPDIR", "/tmp")',
             "path = tempfile.mktemp()"],
    "b.sh": ['data=${TMPDIR:-/tmp}/pando-data', "cp keys /var/tmp/keys", 'cp keys "$TMPDIR/keys"', "name=$(mktemp -u)"],
    "c.cc": ['open((fs::temp_directory_path() / "pando.sock").c_str(), O_CREAT);', 'std::getenv("TMPDIR");',
             "mktemp(name);", 'bind("/tmp/pando");'],
}
DRAWN = {
    "d.py": ["tempfile.TemporaryDirectory(prefix='pando-')", "with tempfile.TemporaryFile() as loop:",
             'tempfile.mkstemp(dir="/tmp/")', "x = 1  # as /tmp/x", 'environment = {**os.environ, "TMPDIR": own}'],
    "e.sh": ['TMPDIR=$(mktemp -d "${TMPDIR:-/tmp}/pt.XXXX")', 'log=$TMPDIR/log', "# /tmp/x"],
    "f.cc": ['(fs::temp_directory_path() / "pando-XXXXXX").string();', 'int a; /* "ipc:///tmp/x" */', "// /tmp/x",
             'Fail("set TMPDIR to a shorter one, not /usr/tmp/x");'],
    "tests/g.cc": ['Parse("ipc:///tmp/x");'],
}


class TemporaryTest(LintTest):
    def test_fixed_names_are_found(self):
        project = self.project({path: "\n".join(lines) + "\n" for path, lines in FIXED.items()})
        self.expect(temporary.check_temporary(project), *[(path, number, "mkdtemp") for path, lines in FIXED.items()
                                                          for number in range(1, len(lines) + 1)])

    def test_drawn_names_are_not(self):
        project = self.project({path: "\n".join(lines) + "\n" for path, lines in DRAWN.items()})
        self.expect(temporary.check_temporary(project))


if __name__ == "__main__":
    unittest.main()
