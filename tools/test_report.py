#!/usr/bin/env python3
"""Answers questions of tools/test.sh about Meson's files.

  test_report.py targets FOLDER SUITE...   the build targets that the suites' tests need, one per
                                           line; reads `meson introspect --tests --targets` on stdin
  test_report.py slice COMMIT              the test of the suite "thorough" that the commit's hash
                                           chooses; reads `meson introspect --tests` on stdin
  test_report.py summary WORD...           prints the output of failed tests, the times, then "N passed,
                                           N failed" (", N skipped"); exits 1 where something failed.
                                           WORD is a testlog.json, or PART=SECONDS, or ccache=HITS/CALLS,
                                           or "broken:WHAT" instead of a log, which counts as a failure
"""
import json
import os
import re
import sys
from collections import Counter

LOG_LINES_MAX = 300  # the last ones of each failed test
SLOWEST_SHOWN = 10
MINUTES_MAX = 25  # a longer run prints a warning
THOROUGH = "pando:thorough"
UNSLICED = "pando:long"  # more than a minute: only for --all
UNITTEST_TOTAL = re.compile(r"^Ran (\d+) tests? in ", re.MULTILINE)
UNITTEST_FAILED = re.compile(r"\b(?:failures|errors)=(\d+)")
UNITTEST_SKIPPED = re.compile(r"\bskipped=(\d+)")
DOCTEST_TOTALS = re.compile(r"\[doctest\] test cases:\s*\d+ \|\s*(\d+) passed \|\s*(\d+) failed")
SKIPPED = {"SKIP"}
PASSED = {"OK", "EXPECTEDFAIL"}


def needed_targets(folder, suites, introspection):
    files = {target["id"]: target["filename"] for target in introspection["targets"]}
    wanted = {"pando:" + suite for suite in suites}
    paths = set()
    for test in introspection["tests"]:
        if wanted.isdisjoint(test["suite"]):
            continue
        for target_id in test["depends"]:
            paths.update(files[target_id])
        paths.add(test["cmd"][0])
    root = os.path.realpath(folder) + os.sep
    return sorted(path[len(root):] for path in map(os.path.realpath, paths) if path.startswith(root))


def choose_slice(commit, introspection):
    names = sorted(test["name"] for test in introspection
                   if THOROUGH in test["suite"] and UNSLICED not in test["suite"])
    if not names:
        sys.exit("error: no test is in suite thorough")
    return names[int(commit[:12], 16) % len(names)]


def read_log(path):
    """Yields one JSON object per test and line; None if the run left no log."""
    try:
        with open(path, encoding="utf-8", errors="replace") as log:
            return [json.loads(line) for line in log if line.strip()]
    except FileNotFoundError:
        return None


def count(test):
    """Returns (passed, failed, skipped): test cases of a doctest or unittest program, else the program."""
    if test["result"] in SKIPPED:
        return 0, 0, 1
    ok = test["result"] in PASSED
    totals = DOCTEST_TOTALS.findall(test.get("stdout") or "")
    in_python = UNITTEST_TOTAL.search(test.get("stderr") or "")
    if in_python:
        return count_unittest(int(in_python.group(1)), test["stderr"], ok)
    if not totals:
        return (1, 0, 0) if ok else (0, 1, 0)
    passed = sum(int(p) for p, _ in totals)
    failed = sum(int(f) for _, f in totals)
    # A program may fail without a failed case: a sanitizer's report at its end, a time-out. A filter
    # that matches no case is a mistake.
    return passed, failed if ok and passed + failed > 0 else max(failed, 1), 0


def count_unittest(total, output, ok):
    last_line = output.strip().splitlines()[-1]
    failed = sum(map(int, UNITTEST_FAILED.findall(last_line)))
    skipped = sum(map(int, UNITTEST_SKIPPED.findall(last_line)))
    return total - failed - skipped, failed if ok else max(failed, 1), skipped


def print_failure(folder, test):
    print(f"\n---- {folder}: {test['name']}: {test['result']} ----")
    for stream in ("stdout", "stderr"):
        lines = (test.get(stream) or "").splitlines()
        if len(lines) > LOG_LINES_MAX:
            print(f"({len(lines) - LOG_LINES_MAX} lines left out)")
        print("\n".join(lines[-LOG_LINES_MAX:]))


def count_log(path):
    """Returns (tests, failures outside tests). Prints the reason of the latter."""
    if path.startswith("broken:"):
        print(f"\n---- could not build or run: {path.removeprefix('broken:')} ----")
        return [], 1
    tests = read_log(path)
    if tests is None:
        print(f"\n---- {path}: the test run left no log ----")
        return [], 1
    return tests, 0


def print_times(times, tests):
    """Prints the time that each part took. `times`: "PART=SECONDS" or "ccache=HITS/CALLS"."""
    seconds = Counter()
    rates = []
    for part, _, value in (time.partition("=") for time in times):
        if part == "ccache":
            rates.append(f"ccache {value} hits")
        else:
            seconds[part] += int(value)
    slowest = sorted(tests, key=lambda test: test["duration"], reverse=True)[:SLOWEST_SHOWN]
    if slowest:
        print("\nslowest tests:")
        for test in slowest:
            print(f"  {test['duration']:6.1f} s  {test['name'].split(' / ')[-1]}")
    if seconds:
        print("seconds: " + ", ".join([f"{part} {spent}" for part, spent in seconds.items()] + rates))
    if sum(seconds.values()) > 60 * MINUTES_MAX:
        print(f"warning: this took {sum(seconds.values()) // 60} minutes, more than {MINUTES_MAX}")


def summarise(words):
    times = [word for word in words if re.fullmatch(r"[\w-]+=[\d/]+", word)]
    passed = failed = skipped = 0
    all_tests = []
    for path in words:
        if path in times:
            continue
        tests, failures = count_log(path)
        failed += failures
        all_tests += tests
        folder = os.path.basename(os.path.dirname(os.path.dirname(path)))
        for test in tests:
            p, f, s = count(test)
            passed, failed, skipped = passed + p, failed + f, skipped + s
            if f:
                print_failure(folder, test)
    print_times(times, all_tests)
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return failed


def main():
    command, *arguments = sys.argv[1:] or [""]
    if command == "targets" and len(arguments) > 1:
        print("\n".join(needed_targets(arguments[0], arguments[1:], json.load(sys.stdin))))
    elif command == "slice" and len(arguments) == 1:
        print(choose_slice(arguments[0], json.load(sys.stdin)))
    elif command == "summary" and arguments:
        sys.exit(1 if summarise(arguments) else 0)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
