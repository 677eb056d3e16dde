"""The run that a script without `pando run` starts for itself: one scheduler and one server."""
import atexit
import os
import select
import shutil
import subprocess
import threading
import time
from typing import Dict, List, Optional

from ._library import find_file
from .errors import PandoError

START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 10.0


class OwnRun:
    """A `pando run --attach` as a child of this process. The child ends with the run, or with this process."""

    def __init__(self):
        """Starts the child and waits for its scheduler. Raises PandoError if one of them does not start."""
        self.endpoint = ""
        self._keys_before: Optional[str] = None  # PANDO_KEYS before this run has set it
        self._has_set_keys = False
        self._owner = os.getpid()
        self._process: Optional[subprocess.Popen] = None
        self._error: Optional[BaseException] = None
        self._is_started = threading.Event()
        reader, writer = os.pipe()
        try:
            command = [find_program(), "run", "--attach", "--workers", "1", "--servers", "1",
                       "--endpoint-file", f"/dev/fd/{writer}"]
            # The kernel ends the child when the thread that started it ends, so that thread keeps running.
            threading.Thread(target=self._keep, args=(command, writer), name="pando-run", daemon=True).start()
            self._is_started.wait()
            os.close(writer)
            writer = -1
            self.endpoint = self._read_endpoint(reader)
        except BaseException:
            self.close()
            raise
        finally:
            os.close(reader)
            if writer >= 0:
                os.close(writer)
        atexit.register(self.close)

    def _keep(self, command: List[str], writer: int) -> None:
        try:
            # It has its own session, so that a terminal's Ctrl-C reaches it once, from stop().
            self._process = subprocess.Popen(command, pass_fds=(writer,), stdin=subprocess.DEVNULL,
                                             start_new_session=True, env=ending_with_this_process())
        except BaseException as error:
            self._error = error
        finally:
            self._is_started.set()
        if self._process is not None:
            self._process.wait()

    def _read_endpoint(self, reader: int) -> str:
        if self._process is None:
            raise PandoError(f"cannot start pando run: {self._error}")
        deadline = time.monotonic() + START_TIMEOUT_S
        text = b""
        while not text.endswith(b"\n"):
            if not select.select([reader], [], [], max(deadline - time.monotonic(), 0))[0]:
                raise PandoError(f"pando run named no endpoint within {START_TIMEOUT_S:.0f} s: its messages are above")
            part = os.read(reader, 4096)
            if not part:
                raise PandoError("pando run ended before its scheduler listened: its messages are above")
            text += part
        endpoint, _, keys = text.decode().rstrip("\n").partition(" ")
        if keys:
            self._keys_before = os.environ.get("PANDO_KEYS")
            os.environ["PANDO_KEYS"] = keys
            self._has_set_keys = True
        return endpoint

    def _forget_keys(self) -> None:
        if not self._has_set_keys:
            return
        self._has_set_keys = False
        if self._keys_before is None:
            os.environ.pop("PANDO_KEYS", None)
        else:
            os.environ["PANDO_KEYS"] = self._keys_before

    def stop(self) -> None:
        """Ends the run in order: its worker learns of the end."""
        self._process.terminate()

    def close(self, is_over: bool = False) -> None:
        """Ends the child. If the run is over, the child has 10 s to end by itself."""
        atexit.unregister(self.close)
        self._forget_keys()
        if self._process is None or os.getpid() != self._owner:  # a forked child must not end its parent's run
            return
        for stop in (lambda: None, self._process.terminate, self._process.kill)[0 if is_over else 1:]:
            stop()
            try:
                self._process.wait(END_TIMEOUT_S)
                return
            except subprocess.TimeoutExpired:
                continue


def ending_with_this_process() -> Dict[str, str]:
    """Returns the environment of a program pando that the kernel kills when the thread that has started it ends.

    The program arranges this itself. A preexec_fn would run Python between fork and exec, which can wait for ever for a
    lock that another thread held.
    """
    return {**os.environ, "PANDO_ENDS_WITH": str(os.getpid())}


def find_program() -> str:
    """Returns the path of the program pando. Raises PandoError with the places searched."""
    path, places = find_file("PANDO_PROGRAM", "pando", "cli")
    path = path or shutil.which("pando")
    if path is None:
        raise PandoError(f"cannot find the program pando. Searched: {'; '.join([*places, 'PATH'])}. Build it with "
                         "`ninja -C build`, set PANDO_PROGRAM, or start the script with `pando run`")
    return path
