"""Runs one file of the package's tests, against the real library where PANDO_LIBRARY names it.

Usage: run_tests.py FILE. Exits with 77 where this Python has no torch.
"""
import importlib.util
import sys
import unittest
from pathlib import Path

SKIPPED = 77


def main() -> int:
    path = Path(sys.argv[1])
    if importlib.util.find_spec("torch") is None:
        print(f"{path.name} is skipped: {sys.executable} has no torch; tools/setup.sh torch installs Debian's")
        return SKIPPED
    sys.path[:0] = [str(path.parent.parent), str(path.parent)]
    suite = unittest.defaultTestLoader.loadTestsFromName(path.stem)
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
