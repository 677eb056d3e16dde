"""The page of `pando view` with a stream made by hand: a run that makes no steps (docs/testing.md).

    tests/e2e/view/stalled_page_test.py

Exit code 77: there is no Chromium.
"""
import http.server
import json
import queue
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from chromium import Chromium, Page, find_chromium
from viewed_run import DEADLINE_S, end_children_on_signals

SKIPPED = 77
FOLDER = Path(__file__).resolve().parents[3] / "view/page"
FILES = {"/": "index.html", "/uplot.js": "uplot/uPlot.iife.js", "/uplot.css": "uplot/uPlot.min.css"}
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
PHONE = (390, 844)  # CSS pixels
HOSTILE = "é→<img src=x onerror=document.title='hostile'> worker 0 waits for server 1 " + "x" * 300
TOKEN = "0123456789abcdef+/="
LOG_LINE = "2026-11-28 07:00:00.000 [server 1] info: <b>the last line</b>"
STALL = {"text": HOSTILE, "waited_for": "server 1", "since_ms": 1500, "log_line": LOG_LINE}
NODES = {"worker 0": {"name": "worker 0", "role": "worker", "rank": 0, "step": 7, "waiting_for": "server 1"},
         "server 1": {"name": "server 1", "role": "server", "rank": 1, "step": 7},
         "__proto__": {"name": "__proto__", "role": "worker", "rank": 1, "step": 7}}
EVENTS = [{"elapsed_ms": 9000, "event": "stalled", "details": {"node": "server 1", "text": HOSTILE}},
          {"elapsed_ms": 9900, "event": "stall-ended", "details": {"node": "server 1", "text": "steps go on"}}]
HELLO = {"version": "0", "columns": ["step"], "runs": [{"run": 0, "name": "first", "job": "", "can_control": False}]}
STATE = "document.getElementById('connection')?.dataset.state"
STEPS_SHOWN = """Object.fromEntries([...document.querySelectorAll('#cluster tr[data-node]')].map(
    row => [row.dataset.node, row.cells[4].textContent]))"""


class Site(http.server.ThreadingHTTPServer):
    """The page's files, and for the token one log, and a stream of what `tell` is given."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server_port}/"
        self.events: queue.Queue = queue.Queue()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def tell(self, kind: str, data: dict[str, Any]) -> None:
        self.events.put(f"event: {kind}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode())

    def end_stream(self) -> None:
        self.events.put(b"")


class Handler(http.server.BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if path.startswith("/api/") and self.headers["Authorization"] != f"Bearer {TOKEN}":
            self.send_error(401)
        elif path == "/api/stream":
            self.begin("text/event-stream")
            while event := self.server.events.get():
                for byte in event:  # a reader gets its parts, also those of a character
                    self.wfile.write(bytes([byte]))
        elif path == "/api/log":
            self.begin("text/plain")
            self.wfile.write(f"the log of {self.path.split('name=')[1]}".encode())
        else:
            file = FOLDER / FILES.get(path, path[1:])
            self.begin(TYPES[file.suffix])
            self.wfile.write(file.read_bytes())

    def begin(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind + "; charset=utf-8")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def wait(page: Page, expression: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"{expression} stays false; errors {page.errors}"
        time.sleep(0.05)  # a page cannot be waited for otherwise


def check_banner(page: Page) -> None:
    wait(page, "document.getElementById('stalls').checkVisibility()")
    texts = page.evaluate("[...document.querySelectorAll('.stalled > :is(p, pre)')].map(each => each.textContent)")
    assert texts == [HOSTILE, LOG_LINE], texts
    assert page.evaluate("document.querySelectorAll('#stalls :is(img, b)').length") == 0, "a text has become HTML"
    assert page.evaluate("document.getElementById('stalls').role") == "status"
    font = page.evaluate("getComputedStyle(document.querySelector('.stalled pre')).fontFamily")
    assert "monospace" in font, font
    top = page.evaluate("document.getElementById('stalls').getBoundingClientRect().top < 100")
    assert top, "the banner is not at the top"


def check_events(page: Page) -> None:
    names = page.evaluate("[...document.querySelectorAll('#events li')].map(each => each.dataset.event)")
    assert names == ["stall-ended", "stalled"], names
    assert page.evaluate("document.querySelectorAll('#events img').length") == 0, "a text has become HTML"


def check_phone(page: Page) -> None:
    page.set_viewport(*PHONE, is_phone=True)
    for scheme in ("dark", "light"):
        page.set_color_scheme(scheme)
        page.await_frames()
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE[0], f"{scheme}, on a phone of {PHONE[0]} pixels: the page has a width of {width}"


def check_access(site: Site, page: Page) -> None:
    """The token leaves the address, and stays in the tab, which connects again by itself."""
    assert page.evaluate("location.href") == site.address, page.evaluate("location.href")
    assert page.evaluate("document.cookie") == ""
    site.end_stream()
    wait(page, f"{STATE} == 'lost'")
    site.tell("hello", HELLO)
    wait(page, f"{STATE} == 'live'")


def check_other_tokens(site: Site, browser: Chromium) -> None:
    stranger = browser.open(site.address)
    wait(stranger, f"{STATE} == 'refused'")
    stranger.evaluate(f"location.hash = 'token={TOKEN}'")  # as if the printed address were pasted
    wait(stranger, f"{STATE} == 'live'")
    assert stranger.evaluate("location.href") == site.address


def play(site: Site, page: Page) -> None:
    check_banner(page)
    check_events(page)
    assert page.evaluate(STEPS_SHOWN) == {"worker 0": "7", "server 1": "7", "__proto__": "7"}
    page.evaluate("document.querySelector('.stalled button').click()")
    wait(page, "document.getElementById('log').textContent == 'the log of server-1'")
    page.evaluate("document.getElementById('log-dialog').close()")
    check_phone(page)
    site.tell("update", {"run": 0, "status": {"stall": None, "nodes": {"worker 0": {"step": 8}, "__proto__": None}}})
    wait(page, "document.getElementById('stalls').hidden")
    assert page.evaluate(STEPS_SHOWN) == {"worker 0": "8", "server 1": "7"}
    assert page.evaluate("document.title").startswith("first"), "a text has run as a script"
    assert not page.errors, page.errors
    check_access(site, page)


def main() -> int:
    end_children_on_signals()
    if find_chromium() is None:
        print("SKIPPED: there is no Chromium: tools/setup.sh view installs it", file=sys.stderr)
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="pando-test-", ignore_cleanup_errors=True) as name:
        site = Site()
        site.tell("hello", HELLO)
        site.tell("update", {"run": 0, "replace": True, "summary": None, "logs": ["server-1"], "events": EVENTS,
                             "status": {"phase": "training", "step": 7, "nodes": NODES, "stall": STALL}})
        with Chromium(Path(name)) as browser:
            play(site, browser.open(f"{site.address}#token={TOKEN}"))
            check_other_tokens(site, browser)
    return 0


if __name__ == "__main__":
    sys.exit(main())
