"""The command pando, and `python -m pando_train`. It becomes the program pando of this package."""
import os
import shutil
import signal
import sys

from ._library import find_file
from .errors import PandoError


def main() -> None:
    """Replaces this process by the program, with the same arguments. Does not return."""
    try:
        program, places = find_file("PANDO_PROGRAM", "pando", "cli")
    except PandoError as error:
        sys.exit(f"pando: {error}")
    if program is None:
        sys.exit(f"pando: this package has no program pando. Searched: {'; '.join(places)}")
    folder = os.path.dirname(sys.executable)
    if os.path.dirname(shutil.which("python3") or "") != folder:  # `pando run train.py` starts this Python
        os.environ["PATH"] = os.pathsep.join([folder, os.environ.get("PATH", os.defpath)])
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and so would the program
        signal.signal(number, signal.SIG_DFL)
    os.execv(program, ["pando", *sys.argv[1:]])


if __name__ == "__main__":
    main()
