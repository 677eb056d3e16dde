"""Findings, and the list of exceptions that still hides some of them."""
from collections import defaultdict
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """`size` is the measured value of a limit, or 1. `name` tells two findings of one file apart."""
    check: str
    path: str
    line: int
    what: str  # what is wrong, and what to do
    name: str = ""
    size: int = 1

    @property
    def where(self):
        return f"{self.path}:{self.name}" if self.name else self.path

    def __str__(self):
        return f"{self.path}:{self.line}: {self.what} [{self.check}]"


@dataclass
class Exemption:
    """One line of the list: findings of `check` at `where` are hidden up to `at_most` in sum."""
    check: str
    where: str
    at_most: int
    reason: str
    line: int

    def __str__(self):
        return f"{self.check:<10} {self.where:<50} {self.at_most:>5}  {self.reason}"


class Exceptions:
    """The list in tools/lint/exceptions.txt: CHECK WHERE AT_MOST REASON, one per line."""

    def __init__(self, path, text):
        self.path = path
        self.lines = text.splitlines()
        self.entries = []
        self.malformed = []
        for number, line in enumerate(self.lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            fields = line.split(None, 3)
            if len(fields) < 4 or not fields[2].isdigit():
                self.malformed.append(number)
            else:
                self.entries.append(Exemption(fields[0], fields[1], int(fields[2]), fields[3], number))

    def apply(self, checks, findings):
        """Returns the findings of `checks` that remain, and those that the list itself causes."""
        sums = sum_sizes(findings)
        bounds = {(entry.check, entry.where): entry for entry in self.entries}
        remaining = []
        for finding in findings:
            entry = bounds.get((finding.check, finding.where))
            if entry is None or sums[finding.check, finding.where] > entry.at_most:
                remaining.append(finding)
        for entry in self.entries:
            if entry.check in checks and (entry.check, entry.where) not in sums:
                remaining.append(Finding("exceptions", self.path, entry.line,
                                         f"the exception {entry.check} {entry.where} is no longer needed: "
                                         "remove it (tools/lint.sh --shrink)"))
        for line in self.malformed:
            remaining.append(Finding("exceptions", self.path, line,
                                     "an exception is CHECK WHERE AT_MOST REASON: complete the line"))
        return remaining

    def shrunk(self, checks, findings):
        """Returns the text of the list after unneeded entries are dropped and the others lowered."""
        sums = sum_sizes(findings)
        by_line = {entry.line: entry for entry in self.entries}
        kept = []
        for number, line in enumerate(self.lines, 1):
            entry = by_line.get(number)
            if entry is None or entry.check not in checks:
                kept.append(line)
            elif (entry.check, entry.where) in sums:
                entry.at_most = min(entry.at_most, sums[entry.check, entry.where])
                kept.append(str(entry))
        return "\n".join(kept) + "\n"

    def grown(self, findings, reason):
        """Returns the text of the list with entries that hide all `findings`."""
        listed = {(entry.check, entry.where) for entry in self.entries}
        by_line = {entry.line: entry for entry in self.entries}
        sums = sum_sizes(findings)
        kept = []
        for number, line in enumerate(self.lines, 1):
            entry = by_line.get(number)
            if entry is not None:
                entry.at_most = max(entry.at_most, sums.get((entry.check, entry.where), 0))
            kept.append(line if entry is None else str(entry))
        new = [str(Exemption(check, where, size, reason, 0)) for (check, where), size in sorted(sums.items())
               if (check, where) not in listed]
        return "\n".join(kept + new) + "\n"


def sum_sizes(findings):
    sums = defaultdict(int)
    for finding in findings:
        sums[finding.check, finding.where] += finding.size
    return dict(sums)
