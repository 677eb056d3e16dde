"""Finds fixed names below a folder that all users of the machine share: another user can create such a name first,
and read and exchange its content."""
import re

from findings import Finding

SUFFIXES = (".py", ".sh", ".sbatch", ".cc", ".h", ".cu", ".cuh")
SHARED_FOLDER = re.compile(r"gettempdir|temp_directory_path|P_tmpdir|\$\{?TMPDIR\b"
                           r"|(?:getenv\(|environ\[|environ\.get\()[\"']TMPDIR"
                           r"|(?<![\w.])/(?:var/tmp|tmp|dev/shm)/\w|[\"'](?:/var)?/(?:tmp|dev/shm)/?[\"']")
# Each draws a name that is new, or creates no name.
DRAWS = re.compile(r"mkd?s?temp|mktemp|TemporaryDirectory|TemporaryFile|X{4}|\.glob\(")
GUESSED = re.compile(r"\btempfile\.mktemp|\btempnam\b|\btmpnam\b|\bmktemp\(|\bmktemp .*(?:-u|--dry-run)\b")
COMMENT = re.compile(r"/\*.*?\*/|(?:^|\s)(?://|#|\*\s).*")


def check_temporary(project):
    """No fixed name below the temporary folder: mkdtemp and its like draw one."""
    findings = []
    for path in project.files_with(*SUFFIXES):
        text = project.text(path)
        if path.startswith(("tests/", "python/tests/", "tools/lint/")):
            continue
        if "TMPDIR=$(mktemp -d" in text:  # from here on the folder is private
            text = re.sub(r"\$\{?TMPDIR\b(?!:)", "", text)
        for number, line in enumerate(text.splitlines(), 1):
            line = COMMENT.sub("", line)
            if GUESSED.search(line) or SHARED_FOLDER.search(line) and not DRAWS.search(line):
                findings.append(Finding("temporary", path, number, "a fixed name below a folder that all users share: "
                                        "draw one with mkdtemp, TemporaryDirectory or mktemp -d"))
    return findings
