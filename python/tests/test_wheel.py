"""The wheel's own files, from the program and the library of the build. Debian's libraries are not added."""
import csv
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

from support import ROOT

sys.path.append(str(ROOT / "tools"))
import wheel_backend  # noqa: E402

VERSION = wheel_backend.read_project()["version"]
INFO = f"pando_train-{VERSION}.dist-info"

# Loads the library as the package does, dials with its libzmq, and prints what a false server gets (net/zmq/
# checked_curve.h): after a WELCOME with the short-term key that argv has, else after a READY under a key of zeros.
FALSE_SERVER = """
import ctypes, os, socket, sys
ctypes.CDLL(sys.argv[1])
loaded = {line.split()[-1] for line in open("/proc/self/maps") if "/" in line}
zmq, sodium = (ctypes.CDLL(next(path for path in loaded if name in path)) for name in ("libzmq", "libsodium"))
for name in ("zmq_ctx_new", "zmq_socket"):
    getattr(zmq, name).restype = ctypes.c_void_p
pair = [ctypes.create_string_buffer(41) for _ in range(2)]
zmq.zmq_curve_keypair(*pair)
dealer = ctypes.c_void_p(zmq.zmq_socket(ctypes.c_void_p(zmq.zmq_ctx_new()), 5))
for option, key in ((48, pair[0]), (49, pair[1]), (50, pair[0])):
    assert zmq.zmq_setsockopt(dealer, option, key, 40) == 0
listener = socket.create_server(("127.0.0.1", 0))
assert zmq.zmq_connect(dealer, b"tcp://127.0.0.1:%d" % listener.getsockname()[1]) == 0
assert zmq.zmq_send(dealer, b"secret", 6, 0) == 6
peer = listener.accept()[0]
peer.sendall(b"\\xff" + bytes(7) + b"\\1\\x7f\\3\\1CURVE" + bytes(47))
hello = peer.recv(64 + 202, socket.MSG_WAITALL)[64 + 2:]
number, text, box = bytes(7) + b"\\1", b"\\x0bSocket-Type" + bytes(3) + b"\\6ROUTER", ctypes.create_string_buffer(38)
sodium.crypto_box_easy_afternm(box, text, ctypes.c_ulonglong(len(text)), b"CurveZMQREADY---" + number, bytes(32))
command = b"\\5READY" + number + box.raw
if len(sys.argv) > 2:
    secret, box, nonce = ctypes.create_string_buffer(32), ctypes.create_string_buffer(144), bytes(16)
    zmq.zmq_z85_decode(secret, pair[1])
    text = bytes.fromhex(sys.argv[2]) + bytes(96)
    sodium.crypto_box_easy(box, text, ctypes.c_ulonglong(128), b"WELCOME-" + nonce, hello[80:112], secret)
    command = b"\\7WELCOME" + nonce + box.raw
peer.sendall(bytes([4, len(command)]) + command)
print(peer.recv(1000), flush=True)
os._exit(0)
"""


class WheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        files = [os.environ[name] for name in ("PANDO_PROGRAM", "PANDO_LIBRARY")]
        cls.wheel = wheel_backend.pack(cls.folder, *map(Path, files))
        subprocess.run([sys.executable, "-m", "zipfile", "-e", cls.wheel, cls.folder / "site"], check=True)

    def read(self, name):
        return (self.folder / "site" / name).read_text(encoding="utf-8")

    def run_python(self, *arguments):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PANDO_")}
        return subprocess.run([sys.executable, *arguments], env={**kept, "PYTHONPATH": str(self.folder / "site")},
                              check=True, stdout=subprocess.PIPE, text=True, cwd=self.folder).stdout

    def test_a_server_without_a_key_gets_nothing_from_the_library(self):
        library = self.folder / "site/pando_train/libpando_worker.so"
        self.assertEqual(self.run_python("-c", FALSE_SERVER, library), "b''\n")
        for key in ("00" * 32, "ed" + "ff" * 31, "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"):
            self.assertEqual(self.run_python("-c", FALSE_SERVER, library, key), "b''\n")

    def test_record_has_every_file_and_its_hash(self):
        with zipfile.ZipFile(self.wheel) as archive:
            rows = list(csv.reader(self.read(f"{INFO}/RECORD").splitlines()))
            self.assertEqual([row[0] for row in rows], archive.namelist())
            for name, digest, size in rows[:-1]:
                content = archive.read(name)
                self.assertEqual((digest, size), (f"sha256={wheel_backend.digest(content)}", str(len(content))))
            self.assertEqual(rows[-1], [f"{INFO}/RECORD", "", ""])
            self.assertEqual(archive.getinfo("pando_train/pando").external_attr >> 16, 0o100755)

    def test_files_and_tags(self):
        names = {str(path.relative_to(self.folder / "site")) for path in self.folder.glob("site/*/*") if path.is_file()}
        modules = {f"pando_train/{path.name}" for path in (ROOT / "python" / "pando_train").glob("*.py")}
        self.assertEqual(names, modules | {"pando_train/pando", "pando_train/libpando_worker.so"} | {
            f"{INFO}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt")})
        self.assertIn("Tag: py3-none-linux_x86_64\n", self.read(f"{INFO}/WHEEL"))
        self.assertEqual(self.wheel.name, f"pando_train-{VERSION}-py3-none-linux_x86_64.whl")
        self.assertIn(f"Version: {VERSION}\n", self.read(f"{INFO}/METADATA"))
        self.assertTrue((self.folder / "site" / INFO / "licenses" / "LICENSE").exists())

    def test_the_command_runs_the_program_without_torch(self):
        (self.folder / "site/pando_train/pando").chmod(0o755)  # Python's zipfile drops modes
        self.assertEqual(self.read(f"{INFO}/entry_points.txt"),
                         "[console_scripts]\npando = pando_train.__main__:main\n")
        version = f"pando {VERSION}\n"
        self.assertEqual(self.run_python("-m", "pando_train", "--version"), version)
        blocked = "import sys; sys.modules['torch'] = None; sys.argv[1:] = ['--version']; "
        self.assertEqual(self.run_python("-c", blocked + "from pando_train.__main__ import main; main()"), version)

    def test_the_package_finds_its_library(self):
        loads = "from pando_train._library import load_library as load; print(load().pando_version().decode())"
        self.assertEqual(self.run_python("-c", loads), f"{VERSION}\n")
