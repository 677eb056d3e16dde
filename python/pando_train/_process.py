"""Handles signals and errors while the process takes part in a run."""
import atexit
import os
import signal
import sys
import threading
import traceback
from typing import Any, Callable, Dict, Optional

DEFAULTS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
LATE_S = 1.0  # from the end of a loop to the end of the script, if an error ends both


class ProcessGuard:
    """Leaves the run at the first Ctrl-C or SIGTERM, and reports an error that ends the script.

    A second signal has Python's usual effect. Handlers that the program has installed stay.
    The guard owns the handlers of this process from its creation to remove().
    """

    def __init__(self, leave: Callable[[], None], fail: Callable[[str], None]):
        self._process = os.getpid()
        self._leave = leave
        self._fail = fail
        self._handlers: Dict[int, Any] = {}
        self._lock = threading.Lock()  # guards _close, and the worker once the loop has ended
        self._close: Optional[Callable[[], None]] = None
        self._next_hook = sys.excepthook
        sys.excepthook = self._hook = self._report
        if threading.current_thread() is threading.main_thread():
            for number, default in DEFAULTS.items():
                if signal.getsignal(number) == default:
                    self._handlers[number] = default
                    signal.signal(number, self._handle)

    def remove(self) -> None:
        self._restore_signals()
        if sys.excepthook is self._hook:
            sys.excepthook = self._next_hook

    def remove_late(self, close: Callable[[], None]) -> None:
        """Calls `close`, which removes the guard, once: after an error was reported, after 1 s or at the script's end.

        An error in the loop ends the loop's generator before sys.excepthook is called with it.
        """
        self._restore_signals()
        self._close = close
        atexit.register(self._close_once)
        timer = threading.Timer(LATE_S, self._close_once)
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError:  # the interpreter is ending
            self._close_once()

    def _close_once(self) -> None:
        with self._lock:
            close, self._close = self._close, None
            if close is not None:
                close()
                atexit.unregister(self._close_once)  # only now, because the script's end waits for it

    def _restore_signals(self) -> None:
        while self._handlers:
            number, handler = self._handlers.popitem()
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: Any) -> None:
        self._restore_signals()
        if os.getpid() != self._process:  # a forked child takes no part in the run
            os.kill(os.getpid(), number)
            return
        print(f"pando: {signal.Signals(number).name}: this process leaves the run; a second signal ends it at once",
              file=sys.stderr, flush=True)
        self._leave()

    def _report(self, kind, error, trace) -> None:
        if os.getpid() == self._process:
            with self._lock:
                if issubclass(kind, Exception):
                    self._fail("".join(traceback.format_exception(kind, error, trace)))
            self._close_once()
        self._next_hook(kind, error, trace)
