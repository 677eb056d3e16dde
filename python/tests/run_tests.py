"""Runs one file of the package's tests, against the real library where PANDO_LIBRARY names it.

Usage: run_tests.py FILE. Exits with 77 where this Python has no torch.
"""
import faulthandler
import importlib.util
import os
import sys
import threading
import unittest
from pathlib import Path

SKIPPED = 77
# No file takes a tenth of this alone. A test that hangs says where, instead of holding up all others.
HANG_S = 900


def main() -> int:
    path = Path(sys.argv[1])
    if importlib.util.find_spec("torch") is None:
        print(f"{path.name} is skipped: {sys.executable} has no torch; tools/setup.sh torch installs Debian's")
        return SKIPPED
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    sys.path[:0] = [str(path.parent.parent), str(path.parent)]
    suite = unittest.defaultTestLoader.loadTestsFromName(path.stem)
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    code = 0 if result.wasSuccessful() else 1
    if threading.active_count() > 1:  # a failed test's threads would be waited for, without limit
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
