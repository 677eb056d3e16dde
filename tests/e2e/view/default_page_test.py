"""On a terminal a run has a page without being asked (docs/testing.md).

    tests/e2e/view/default_page_test.py PANDO

The page answers while the run goes on, and ends with it. --http off asks for none.
"""
import argparse
import http.client
import os
import pty
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable

from viewed_run import ADDRESS, DEADLINE_S, JOB, POLL_S, end_children_on_signals

SHORT, ENDLESS = ["--steps", "1"], ["--steps", "1000000"]


def train(pando: str, folder: str, words: list[str], is_enough: Callable[[str], bool]) -> tuple[str, subprocess.Popen]:
    """Returns its output on a terminal, to its end or until that is enough."""
    terminal, own = pty.openpty()
    process = subprocess.Popen([pando, "train", *JOB, "--serial", "--run-dir", folder, "--force", *words],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=own)
    os.close(own)
    said = b""
    try:
        while not is_enough(said.decode(errors="replace")) and (part := os.read(terminal, 1 << 16)):
            said += part
    except OSError:
        pass  # it has ended, and with it its side of the terminal
    return said.decode(errors="replace"), process


def check_default(pando: str, folder: str) -> None:
    said, process = train(pando, folder, ENDLESS, lambda text: ADDRESS.search(text) is not None)
    try:
        found = ADDRESS.search(said)
        assert found, f"no address: {said}"
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=DEADLINE_S)
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {found[2]}"})
        status = connection.getresponse().status
        assert status == 200, f"the page answers with {status}"
    finally:
        process.kill()
        process.wait()
    deadline = time.monotonic() + DEADLINE_S
    while answers(int(found[1])):
        assert time.monotonic() < deadline, "the viewer does not end with the run"
        time.sleep(POLL_S)  # a port cannot be waited for otherwise


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), DEADLINE_S).close()
    except ConnectionError:
        return False
    return True


def check_off(pando: str, folder: str) -> None:
    said, process = train(pando, folder, [*SHORT, "--http", "off"], lambda text: False)
    assert process.wait(DEADLINE_S) == 0 and "page" not in said, said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pando", type=os.path.abspath)
    pando = parser.parse_args().pando
    end_children_on_signals()
    with tempfile.TemporaryDirectory(prefix="pando-test-", ignore_cleanup_errors=True) as name:
        folder = str(Path(name) / "run")
        check_off(pando, folder)
        check_default(pando, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
