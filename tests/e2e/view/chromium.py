"""A client of the Chrome DevTools Protocol, with Python's standard library only: a headless Chromium and its pages.

    with Chromium(folder) as browser:
        page = browser.open("http://127.0.0.1:8080/")
        title = page.evaluate("document.title")
"""
import base64
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, Optional

DEADLINE_S = 120
END_S = 10  # from a polite request to end until SIGKILL
WEBSOCKET_KEY_SUFFIX = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455
CONTINUATION, TEXT, CLOSE, PING, PONG = 0x0, 0x1, 0x8, 0x9, 0xA
FINAL, MASKED, OPCODE, SIZE = 0x80, 0x80, 0x0F, 0x7F
SIZE_IN_2_BYTES, SIZE_IN_8_BYTES = 126, 127
FLAGS = ["--headless=new", "--no-sandbox", "--remote-debugging-port=0", "--no-first-run", "--disable-gpu",
         "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
         "--disable-crash-reporter", "--disable-extensions", "--disable-sync", "--no-default-browser-check",
         "--no-proxy-server", "--window-size=1280,900", "about:blank"]


def find_chromium() -> Optional[str]:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class WebSocket:
    """The client's end of a connection to this machine (RFC 6455). Messages are text."""

    def __init__(self, port: int, path: str):
        self.buffer = bytearray()  # received, and not yet taken as frames
        self.message = bytearray()  # the frames of a message that is not complete yet
        self.socket = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall((f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade\r\n"
                             f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
                             ).encode())
        deadline = time.monotonic() + DEADLINE_S
        while b"\r\n\r\n" not in self.buffer:
            assert self.fill(deadline), f"no answer to a WebSocket's handshake: {bytes(self.buffer)!r}"
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        accepted = base64.b64encode(hashlib.sha1((key + WEBSOCKET_KEY_SUFFIX).encode()).digest())
        assert head.startswith(b"HTTP/1.1 101") and accepted in head, f"no WebSocket: {bytes(head)!r}"

    def fill(self, deadline: float) -> bool:
        """False: nothing has come until then."""
        self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            part = self.socket.recv(1 << 16)
        except TimeoutError:
            return False
        if not part:
            raise ConnectionError("Chromium has closed its connection")
        self.buffer += part
        return True

    def send(self, opcode: int, payload: bytes) -> None:
        head = bytearray([FINAL | opcode])
        if len(payload) < SIZE_IN_2_BYTES:
            head.append(MASKED | len(payload))
        elif len(payload) < 1 << 16:
            head += bytes([MASKED | SIZE_IN_2_BYTES]) + len(payload).to_bytes(2, "big")
        else:
            head += bytes([MASKED | SIZE_IN_8_BYTES]) + len(payload).to_bytes(8, "big")
        mask = os.urandom(4)
        self.socket.settimeout(DEADLINE_S)
        self.socket.sendall(head + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload)))

    def receive(self, within_s: float) -> str:
        """The next message; empty: none within that time."""
        deadline = time.monotonic() + within_s
        while True:
            while (frame := self.take_frame()) is not None:
                is_final, opcode, payload = frame
                if opcode == PING:
                    self.send(PONG, payload)
                elif opcode == CLOSE:
                    raise ConnectionError("Chromium has closed its connection")
                elif opcode in (TEXT, CONTINUATION):
                    self.message += payload
                    if is_final:
                        whole, self.message = self.message.decode(), bytearray()
                        return whole
            if not self.fill(deadline):
                return ""

    def take_frame(self) -> Optional[tuple[bool, int, bytes]]:
        """None: the buffer has no whole frame."""
        if len(self.buffer) < 2:
            return None
        size, start = self.buffer[1] & SIZE, 2
        if size in (SIZE_IN_2_BYTES, SIZE_IN_8_BYTES):
            start += 2 if size == SIZE_IN_2_BYTES else 8
            size = int.from_bytes(self.buffer[2:start], "big") if len(self.buffer) >= start else 0
        if len(self.buffer) < start + size:
            return None
        head, payload = self.buffer[0], bytes(self.buffer[start:start + size])
        del self.buffer[:start + size]
        return bool(head & FINAL), head & OPCODE, payload

    def close(self) -> None:
        self.socket.close()


class Page:
    """A tab. `errors` are those of its console, `received_bytes` those of all answers' bodies."""

    def __init__(self, browser: "Chromium"):
        self.browser = browser
        self.errors: list[str] = []
        self.received_bytes = 0
        self.load_count = 0
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        browser.pages[self.session] = self
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.bringToFront")  # a hidden page may draw nothing

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **parameters)

    def on_event(self, method: str, event: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self.load_count += 1
        elif method == "Network.dataReceived":
            self.received_bytes += event["dataLength"]
        elif method == "Inspector.targetCrashed":
            self.errors.append("the page has crashed")
        elif method == "Runtime.exceptionThrown":
            self.errors.append(describe_exception(event["exceptionDetails"]))
        elif method == "Log.entryAdded" and event["entry"]["level"] == "error":
            entry = event["entry"]
            self.errors.append(f"{entry['source']}: {entry['text']} {entry.get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "assert"):
            words = [str(each.get("value", each.get("description", ""))) for each in event["args"]]
            self.errors.append(f"console.{event['type']}: {' '.join(words)}")

    def navigate(self, address: str) -> None:
        """Returns once the page and its files are loaded."""
        load_count = self.load_count
        answer = self.call("Page.navigate", url=address)
        assert "errorText" not in answer, f"{address}: {answer.get('errorText')}"
        deadline = time.monotonic() + DEADLINE_S
        while self.load_count == load_count:
            assert time.monotonic() < deadline, f"{address} is not loaded within {DEADLINE_S} s"
            self.browser.take_events(0.1)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression, or of its promise."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise ValueError(f"{expression}: {describe_exception(answer['exceptionDetails'])}")
        return answer["result"].get("value")

    def set_viewport(self, width: int, height: int, is_phone: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, mobile=is_phone,
                  deviceScaleFactor=2 if is_phone else 1)

    def set_color_scheme(self, name: str) -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def await_frames(self) -> None:
        """Until the page is drawn as it is now."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def take_screenshot(self, path: Path) -> None:
        """Takes a screenshot of the viewport."""
        self.await_frames()
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


class Chromium:
    """A browser with a new profile in `folder`. It ends with the `with` block, and so do its processes."""

    def __init__(self, folder: Path):
        program = find_chromium()
        assert program, "no Chromium is installed"
        self.folder = folder
        self.pages: dict[str, Page] = {}
        self.last_id = 0
        self.log = folder / "chromium.log"
        folder.mkdir(parents=True, exist_ok=True)
        # Its caches and settings are in the folder too.
        environment = os.environ | {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "XDG_CACHE_HOME": str(folder)}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([program, *FLAGS, f"--user-data-dir={folder}/profile"], env=environment,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        try:
            self.socket = WebSocket(*self.await_address())
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> "Chromium":
        return self

    def __exit__(self, kind: Optional[type], *_: Any) -> None:
        if kind is None:  # else there may be no time: meson's SIGKILL comes soon after its SIGTERM
            try:
                self.call("Browser.close")
                self.process.wait(END_S)
            except (OSError, AssertionError, subprocess.TimeoutExpired):
                pass  # it is killed then
        self.socket.close()
        self.kill()

    def kill(self) -> None:
        """The whole process group: a browser has a process per page, and others."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def await_address(self) -> tuple[int, str]:
        """The port and the path of its WebSocket."""
        path = self.folder / "profile/DevToolsActivePort"
        deadline = time.monotonic() + DEADLINE_S
        while True:
            lines = path.read_text().splitlines() if path.exists() else []
            if len(lines) == 2:
                return int(lines[0]), lines[1]
            assert self.process.poll() is None, f"Chromium has ended: {self.log.read_text(errors='replace')[-2000:]}"
            assert time.monotonic() < deadline, f"Chromium has no port within {DEADLINE_S} s"
            time.sleep(0.05)  # a file cannot be waited for otherwise

    def open(self, address: str) -> Page:
        page = Page(self)
        page.navigate(address)
        return page

    def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        self.last_id += 1
        request = {"id": self.last_id, "method": method, "params": parameters}
        if session:
            request["sessionId"] = session
        self.socket.send(TEXT, json.dumps(request).encode())
        deadline = time.monotonic() + DEADLINE_S
        while True:
            message = self.receive(deadline - time.monotonic())
            assert message, f"no answer to {method} within {DEADLINE_S} s"
            if message.get("id") == self.last_id:
                assert "error" not in message, f"{method}: {message.get('error')}"
                return message["result"]

    def take_events(self, within_s: float) -> None:
        deadline = time.monotonic() + within_s
        while self.receive(deadline - time.monotonic()):
            pass

    def receive(self, within_s: float) -> dict[str, Any]:
        """The next message, which its page has got already if it is an event; empty: none within that time."""
        text = self.socket.receive(within_s)
        message = json.loads(text) if text else {}
        if "method" in message and message.get("sessionId") in self.pages:
            self.pages[message["sessionId"]].on_event(message["method"], message["params"])
        return message


def describe_exception(details: dict[str, Any]) -> str:
    exception = details.get("exception", {})
    return exception.get("description") or f"{details['text']} {exception.get('value', '')}"
