"""What the process does at a signal or an error while it takes part in a run."""
import os
import signal
import sys
import threading
import traceback
from typing import Any, Callable, Dict

DEFAULTS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


class ProcessGuard:
    """Leaves the run at the first Ctrl-C or SIGTERM, and reports an error that ends the script.

    A second signal has Python's usual effect. Handlers that the program has installed stay.
    Owns the handlers of this process from its creation to remove().
    """

    def __init__(self, leave: Callable[[], None], fail: Callable[[str], None]):
        self._process = os.getpid()
        self._leave = leave
        self._fail = fail
        self._handlers: Dict[int, Any] = {}
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
        if issubclass(kind, Exception):
            self._fail("".join(traceback.format_exception(kind, error, trace)))
        self._next_hook(kind, error, trace)
