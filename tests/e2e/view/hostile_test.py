"""Hostile clients of `pando view`: they get no data, give no orders, and do not disturb the run (docs/testing.md).

    tests/e2e/view/hostile_test.py PANDO

The run is stopped while 1,050 connections are open. Its weights must be those of a serial run of as many steps.
"""
import gzip
import json
import resource
import selectors
import socket
import sys
import threading
import time
from dataclasses import dataclass
from urllib.parse import quote

from viewed_run import ADDRESS, main_with, ViewedRun

ANSWER_S = 30
ANSWER_BYTES_MAX = 4 << 20
STEPS_BETWEEN = 100
MEMORY_MAX_MB = 300
FILES_MAX = 1024  # of the viewer: the usual limit of a process
HEADER_BYTES = 1 << 20
ENDLESS_BYTES = 4 << 30  # of a request that must be refused before
RANGES = ",".join(["0-"] * 2600)  # about the longest header that is not oversized
CLOSED = 0  # instead of a status: the connection was closed without an answer
CLIENT_ERRORS = range(400, 500)
JSON = ["Content-Type: application/json", "X-Pando: 1"]
PATHS_OF_DATA = ["/api/stream", "/api/log?run=0&name=worker-0", "/metrics", "/nothing"]
PATHS_OF_PAGE = ["/", "/page.js", "/page.css", "/uplot.js"]
HEADERS = {"content-security-policy": "default-src 'self'; style-src 'self' 'unsafe-inline'",
           "x-content-type-options": "nosniff", "referrer-policy": "no-referrer", "cache-control": "no-store"}
LOG_NAMES = ["../../job.toml", "../job.toml", "..%2F..%2Fjob.toml", "%2e%2e%2fjob.toml", "%252e%252e%252fjob.toml",
             "..%5c..%5cjob.toml", "/etc/passwd", "%2Fetc%2Fpasswd", "worker-0/../../job.toml", "worker-0.log",
             "worker-0%00", "....//job.toml", "", ".", "..", "worker-99", "worker-0%0d%0aX-Bad:%201", "a" * 5000]
FILE_PATHS = ["/../job.toml", "/%2e%2e/job.toml", "/..%2fjob.toml", "//etc/passwd", "/job.toml", "/logs/worker-0.log",
              "/keys/admin.key", "/api/../job.toml", "/page.js/../../job.toml"]
SECRETS = [b"[model]", b"root:", b"global_batch"]  # of job.toml and /etc/passwd


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class Site:
    """The viewer, as clients without a browser reach it."""

    def __init__(self, run: ViewedRun, name: str = "viewer"):
        self.run = run
        found = ADDRESS.search(run.start_viewer(name, run.run_dir))
        self.port, self.token = int(found[1]), found[2]
        self.bearer = f"Authorization: Bearer {self.token}"

    def ask(self, start: str, *headers: str, body: bytes = b"", within_s: float = ANSWER_S) -> Answer:
        """`start` is the method and the path."""
        lines = [f"{start} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", "Connection: close", *headers]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        return self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body, within_s)

    def send(self, request: bytes, within_s: float = ANSWER_S) -> Answer:
        answer = b""
        with socket.create_connection(("127.0.0.1", self.port), within_s) as link:
            try:
                link.sendall(request)
            except ConnectionError:
                pass  # it was closed in between; there may be an answer
            deadline = time.monotonic() + within_s
            try:
                while part := link.recv(1 << 16):
                    answer += part
                    check(len(answer) < ANSWER_BYTES_MAX, f"{request[:100]!r}: the answer does not end")
                    link.settimeout(max(deadline - time.monotonic(), 0.001))
            except ConnectionError:
                pass
            except TimeoutError as error:
                raise TimeoutError(f"{request[:100]!r} has no end after {within_s} s: {answer[:200]!r}") from error
        return parse(answer)

    def order(self, action: str, body: bytes, *headers: str) -> int:
        return self.ask(f"POST /api/{action}", *headers, body=body).status


def parse(answer: bytes) -> Answer:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode(errors="replace").split("\r\n")
    words = first.split(" ")
    headers = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
    return Answer(int(words[1]) if len(words) > 1 else CLOSED, headers, body)


def check(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)


def check_token(site: Site) -> None:
    wrong = [[], ["Authorization: Bearer wrong"], ["Authorization: Bearer "], ["Authorization: Basic " + site.token],
             [f"Authorization: Bearer {site.token[:-1]}"], [f"Authorization: Bearer {site.token}0"],
             [f"Authorization: {site.token}"], [f"Cookie: pando-{site.port}={site.token}"], [f"Cookie: {site.token}"]]
    for path in PATHS_OF_DATA:
        for headers in wrong:
            answer = site.ask(f"GET {path}", *headers)
            check(answer.status == 401, f"GET {path} with {headers}: {answer.status}")
        separator = "&" if "?" in path else "?"
        for token in ("", "wrong", site.token, quote(site.token + "\0")):
            answer = site.ask(f"GET {path}{separator}token={token}")
            check(answer.status == 401, f"GET {path} with the token {token!r} in its path: {answer.status}")
    for action in ("drain", "snapshot", "stop"):
        status = site.order(action, b'{"run":0,"node":"worker-1"}', *JSON)
        check(status == 401, f"POST /api/{action} without a token: {status}")


def check_headers(site: Site) -> None:
    for path in [*PATHS_OF_PAGE, "/metrics", "/api/log?run=0&name=worker-0"]:
        answer = site.ask(f"GET {path}", *([] if path in PATHS_OF_PAGE else [site.bearer]))
        check(answer.status == 200 and answer.body, f"GET {path}: {answer.status}")
        check_answer(answer, path)
    check_answer(site.ask("GET /metrics"), "/metrics without a token")
    check_answer(site.ask("GET /nothing", site.bearer), "/nothing")


def check_smuggling(site: Site) -> None:
    """A body that is not read is no request of another client, and a request has one length."""
    inner = f"GET /metrics HTTP/1.1\r\nHost: x\r\n{site.bearer}\r\n\r\n"
    length = f"Content-Length: {len(inner)}"
    for start, *headers in (
            ("POST /api/stop", length), ("GET /icon.svg", length), ("HEAD /icon.svg", length), ("GET /icon.svg",),
            ("POST /api/stop", site.bearer, length, "Content-Encoding: gzip"),
            ("POST /api/stop", site.bearer, length, "Transfer-Encoding: chunked"),
            ("POST /api/stop", site.bearer, "Content-Length: 0", length),
            ("POST /api/stop", site.bearer, f"Content-Length : {len(inner)}"),
            ("POST /api/stop", site.bearer, f"X: a\r\n {length}"), ("POST /api/stop", site.bearer, f"{length}\n")):
        answer = site.send("\r\n".join([f"{start} HTTP/1.1", *headers]).encode() + b"\r\n\r\n" + inner.encode())
        check(b"pando_steps_total" not in answer.body, f"{start} with {headers} was read as two requests")
        check(answer.headers.get("connection") == "close", f"{start} with {headers} is not closed: {answer.headers}")


def check_answer(answer: Answer, path: str) -> None:
    for name, value in HEADERS.items():
        found = answer.headers.get(name)
        check(found == value, f"{path}: {name} is {found!r}")
    check("access-control-allow-origin" not in answer.headers, f"{path}: other sites may read it")


def check_oversized(site: Site) -> None:
    long = "a" * HEADER_BYTES
    for bearer in ([], [site.bearer]):
        for name, answer in {
                "a header of 1 MB": site.ask("GET /", *bearer, f"X-Long: {long}"),
                "a name of 1 MB": site.ask("GET /", *bearer, f"{long}: 1"),
                "a path of 1 MB": site.ask(f"GET /{long}", *bearer),
                "a query of 1 MB": site.ask(f"GET /api/log?run=0&name={long}", *bearer),
                "a cookie of 1 MB": site.ask("GET /", *bearer, f"Cookie: {long}"),
                "100,000 headers": site.ask("GET /", *bearer, *["X: 1"] * 100_000),
                "a line without an end": site.send(long.encode()),
                "bytes instead of a request": site.send(bytes(range(256)) * 100 + b"\r\n\r\n"),
                "a body of 64 MB": site.ask("POST /api/snapshot", *bearer, *JSON, body=b"[" * (64 << 20)),
                "a length of 2^64": site.ask("POST /api/snapshot", *bearer, *JSON, f"Content-Length: {1 << 64}"),
                "a negative length": site.ask("POST /api/snapshot", *bearer, *JSON, "Content-Length: -1"),
        }.items():
            check(answer.status == CLOSED or answer.status in CLIENT_ERRORS, f"{name}: {answer.status}")


def check_endless(site: Site) -> None:
    """Requests without an end are cut, with the token and without it."""
    post = "\r\n".join(["POST /api/snapshot HTTP/1.1", "Host: x", site.bearer, *JSON]).encode() + b"\r\n"
    bearer = site.bearer.encode() + b"\r\n"
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    for name, head, piece in (
            ("a line without an end", b"GET /", b"a" * (1 << 20)),
            ("headers without an end", b"GET / HTTP/1.1\r\n", b"X: 1\r\n" * 100_000),
            ("headers without an end, with the token", b"GET / HTTP/1.1\r\n" + bearer, b"X: 1\r\n" * 100_000),
            ("a header without an end", b"GET / HTTP/1.1\r\nX: ", b"a" * (1 << 20)),
            ("a body of chunks without an end", post + b"Transfer-Encoding: chunked\r\n\r\n", chunk),
            ("a chunk's size without an end", post + b"Transfer-Encoding: chunked\r\n\r\n", b"0" * (1 << 20)),
            ("a body without a length", post + b"\r\n", b" " * (1 << 20))):
        check(pour(site, head, piece), f"{name} is read for {ENDLESS_BYTES >> 20} MB")
    # Small, and 256 MB once it is unpacked.
    packed = gzip.compress(bytes(256 << 20))[:60_000]
    status = site.ask("POST /api/snapshot", site.bearer, *JSON, "Content-Encoding: gzip", body=packed).status
    check(status in (CLOSED, 415), f"a packed body: {status}")


def pour(site: Site, head: bytes, piece: bytes) -> bool:
    """Sends a request without an end. Returns whether it was cut."""
    with socket.create_connection(("127.0.0.1", site.port), ANSWER_S) as link:
        try:
            link.sendall(head)
            for _ in range(ENDLESS_BYTES // len(piece)):
                link.sendall(piece)
        except ConnectionError:
            return True
    return False


def check_ranges(site: Site) -> None:
    """Many parts of a file are not sent, nor do they end the viewer."""
    for headers in ([], [site.bearer]):
        for path in ("/", "/uplot.js", "/metrics"):
            answer = site.ask(f"GET {path}", *headers, f"Range: bytes={RANGES}")
            check(answer.status in ((401, 416) if not headers else (200, 206, 400, 416)),
                  f"GET {path} with many ranges: {answer.status}")


def check_paths(site: Site) -> None:
    requests = [f"/api/log?run=0&name={name}" for name in LOG_NAMES] + FILE_PATHS
    requests += [f"/api/log?run={run}&name=worker-0" for run in ("1", "-1", "x", "", "99999999999999999999", "0x0")]
    requests += ["/api/log", "/api/log?run=0", "/api/log?name=worker-0"]
    for path in requests:
        answer = site.ask(f"GET {path}", site.bearer)
        check(answer.status in (400, 404, 414), f"GET {path[:200]}: {answer.status}")
        check(not any(secret in answer.body for secret in SECRETS), f"GET {path[:200]} has sent a file")
        check("x-bad" not in answer.headers, f"GET {path[:200]} has added a header")


def check_orders(site: Site) -> None:
    """Orders of other sites, of other methods, and with a bad body."""
    stop = b'{"run":0}'
    same_origin = f"Origin: http://127.0.0.1:{site.port}"
    for headers in ([*JSON, "Origin: http://evil.example"], [*JSON, "Origin: null"], [JSON[0]], [JSON[1]], [],
                    [*JSON, "Sec-Fetch-Site: cross-site"], [*JSON, "Sec-Fetch-Site: same-site"],
                    [*JSON, f"Origin: http://127.0.0.1:{site.port + 1}"],
                    [*JSON, f"Origin: http://127.0.0.1:{site.port}.evil.example"],
                    [JSON[1], "Content-Type: text/plain"], [JSON[1], "Content-Type: application/x-www-form-urlencoded"],
                    [JSON[1], "Content-Type: multipart/form-data; boundary=x"], [JSON[0], same_origin]):
        for action in ("stop", "snapshot", "drain"):
            status = site.order(action, stop, site.bearer, *headers)
            check(status in (400, 403, 415), f"POST /api/{action} with {headers}: {status}")
    for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "STOP"):
        status = site.ask(f"{method} /api/stop", site.bearer, *JSON).status
        check(status == CLOSED or status in (400, 404, 405), f"{method} /api/stop: {status}")
    for body in (b"{", b"[]", b"0", b"{}", b"\xff\xfe", b'{"run":-1}', b'{"run":1}', b'{"run":"0"}', b'{"run":1e99}',
                 b'{"run":null}', b'{"run":0.5}', b'{"run":18446744073709551616}', b"[" * 100_000,
                 b'{"run":' * 100_000):
        status = site.order("stop", body, site.bearer, same_origin, *JSON)
        check(status in (CLOSED, 400, 404, 413), f"POST /api/stop with {body[:40]!r}: {status}")
    for node in ("worker-9", "", "../worker-1", "scheduler", "worker 1\n", "x" * 10_000, 7, None):
        body = json.dumps({"run": 0, "node": node}).encode()
        status = site.order("drain", body, site.bearer, same_origin, *JSON)
        check(status == CLOSED or 400 <= status < 600, f"draining {str(node)[:40]!r}: {status}")


class Flood(threading.Thread):
    """Connections that send nothing, slowly send a request, or never read an answer. One that is closed is opened
    again, until `end`."""

    COUNTS = {"idle": 600, "slow head": 200, "slow body": 200, "reader": 50}
    ROUND_S = 0.1  # a slow connection sends one byte in each round

    def __init__(self, site: Site):
        super().__init__(daemon=True)
        self.address = ("127.0.0.1", site.port)
        self.openings = {
            "idle": b"",
            "slow head": b"GET / HTTP/1.1\r\nX-Slow: ",
            "slow body": f"POST /api/snapshot HTTP/1.1\r\nHost: x\r\n{site.bearer}\r\n".encode()
            + "\r\n".join(JSON).encode() + b"\r\nContent-Length: 1000000\r\n\r\n",
            "reader": f"GET /api/stream HTTP/1.1\r\nHost: x\r\n{site.bearer}\r\n\r\n".encode()}
        self.selector = selectors.DefaultSelector()
        self.links: dict[socket.socket, str] = {}
        self.connected_count = 0  # with those that were opened again
        self.round_count = 0
        self.is_ended = threading.Event()

    def run(self) -> None:
        for kind, count in self.COUNTS.items():
            for _ in range(count):
                self.open(kind)
        while not self.is_ended.wait(self.ROUND_S):
            for key, events in self.selector.select(timeout=0):
                self.serve(key.fileobj, key.data, events)
            for link, kind in list(self.links.items()):
                if kind.startswith("slow"):
                    self.send(link, b"x")
            self.round_count += 1
        for link in self.links:
            link.close()

    def open(self, kind: str) -> None:
        link = socket.socket()
        link.setblocking(False)
        link.connect_ex(self.address)
        self.selector.register(link, selectors.EVENT_WRITE, kind)

    def serve(self, link: socket.socket, kind: str, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self.selector.unregister(link)
            if link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                link.close()
                self.open(kind)
                return
            self.connected_count += 1
            self.links[link] = kind
            self.send(link, self.openings[kind])
            if kind != "reader":  # which leaves its answer unread
                self.selector.register(link, selectors.EVENT_READ, kind)
        elif self.has_closed(link):
            self.selector.unregister(link)
            del self.links[link]
            link.close()
            self.open(kind)

    def has_closed(self, link: socket.socket) -> bool:
        try:
            return not link.recv(1 << 16)
        except OSError:
            return True

    def send(self, link: socket.socket, part: bytes) -> None:
        try:
            link.send(part)
        except OSError:
            pass  # its end is seen by the selector

    def end(self) -> None:
        self.is_ended.set()
        self.join()


def flood(site: Site) -> None:
    """The run makes steps and is stopped meanwhile."""
    run = site.run
    crowd = Flood(site)
    crowd.start()
    try:
        run.wait(lambda: crowd.round_count >= 10, "all connections of the flood were tried")
        step = run.steps() + STEPS_BETWEEN
        run.wait(lambda: run.steps() >= step, f"the run makes step {step} beside the flood")
        count, connected_count = len(crowd.links), crowd.connected_count
        run.command("stop", run.run_dir)
        run.await_end()
    finally:
        crowd.end()
    print(f"flood: {count} connections of {sum(crowd.COUNTS.values())} open at once, {connected_count} with those "
          "that were opened again", flush=True)
    run.wait(lambda: answers(site), "the page answers after the flood", within_s=ANSWER_S)


def answers(site: Site) -> bool:
    try:
        return site.ask("GET /", site.bearer, within_s=5).status == 200
    except OSError:
        return False


def play(run: ViewedRun) -> None:
    run.start_training()
    site = Site(run)
    viewer = run.processes["viewer"]
    resource.prlimit(viewer.pid, resource.RLIMIT_NOFILE, (FILES_MAX, FILES_MAX))
    run.wait(lambda: site.ask("GET /metrics", site.bearer).status == 200, "the viewer answers")
    for checks in (check_token, check_headers, check_oversized, check_endless, check_smuggling,
                   check_ranges, check_paths, check_orders):
        step = run.steps()
        checks(site)
        run.wait(lambda: run.steps() > step, f"the run makes steps after {checks.__name__}")
        check(viewer.poll() is None, f"{checks.__name__} has ended the viewer")
        print(f"step {run.steps()}: {checks.__name__}, {run.memory_peak_mb('viewer'):.0f} MB at most", flush=True)
    flood(site)
    peak_mb = run.memory_peak_mb("viewer")
    steps, weights_hash = run.weights()
    serial_hash = run.serial_hash(steps)
    print(f"stopped after {steps} steps, {weights_hash}; serial {serial_hash}; the viewer's memory: {peak_mb:.0f} MB "
          "at most", flush=True)
    check(weights_hash == serial_hash, "the weights differ")
    check(peak_mb < MEMORY_MAX_MB, f"the viewer has used {peak_mb:.0f} MB")
    drained = [line for line in (run.run_dir / "events.jsonl").read_text().splitlines() if '"drained"' in line]
    check(not drained, f"a hostile client has drained a process: {drained}")


def play_with_files(run: ViewedRun) -> None:
    """With as many open files as the floods need."""
    needed = sum(Flood.COUNTS.values()) + 100
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    check(hard == resource.RLIM_INFINITY or hard >= needed, f"this test needs {needed} files at once; limit {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    play(run)


if __name__ == "__main__":
    sys.exit(main_with(__doc__, play_with_files))
