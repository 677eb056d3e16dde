"""The parts without a run: job text, tensor table, weights, launch, library."""
import ctypes
import importlib.util
import os
import socket
import stat
import subprocess
import sys
import tempfile
import tomllib
import types
import unittest
from pathlib import Path
from unittest import mock

from support import ROOT, Points, make_mlp, nn, pando, torch

from pando_train import _library as lib
from pando_train._job import make_sections, write_toml
from pando_train._launch import OwnRun
from pando_train._random import derive, kept_generators, seed_generators
from pando_train._script import find_second_join
from pando_train._tensors import TensorTable
from pando_train._weights import read_safetensors, write_safetensors


def make_job(optimizer, schedule=None, **options):
    return tomllib.loads(write_toml(make_sections(optimizer, schedule, epochs=None, steps=5, options=options)))


class JobTest(unittest.TestCase):
    def test_every_key_is_one_of_the_job_file(self):
        known = (ROOT / "docs" / "job-file.md").read_text(encoding="utf-8")
        optimizers = [pando.SGD(), pando.Adam(), pando.AdamW(), pando.LARS(), pando.LAMB(), pando.NAdam(),
                      pando.RMSprop(), pando.Adagrad(), pando.Adadelta()]
        schedules = [pando.Constant(), pando.StepLR(5), pando.MultiStepLR([1, 2]), pando.ExponentialLR(0.9),
                     pando.CosineAnnealingLR(), pando.LinearLR(), pando.PolynomialLR(), pando.OneCycle()]
        for optimizer in optimizers:
            for schedule in schedules:
                job = make_job(optimizer, schedule)
                for section in ("train", "optimizer", "schedule", "eval"):
                    for key in job[section]:
                        self.assertIn(f"| `{section}.{key}`", known)
                self.assertIn(job["optimizer"]["type"], known)
                self.assertIn(job["schedule"]["type"], known)

    def test_values_have_the_key_s_type(self):
        job = make_job(pando.AdamW(lr=1, betas=(0.8, 0.9)), pando.MultiStepLR((10, 20), gamma=1, warmup_steps=3))
        self.assertEqual(job["optimizer"], {"type": "adamw", "lr": 1.0, "beta1": 0.8, "beta2": 0.9, "eps": 1e-8,
                                            "weight_decay": 0.01})
        self.assertEqual(job["schedule"], {"type": "multi-step", "milestones": [10, 20], "gamma": 1.0,
                                           "warmup_steps": 3})
        self.assertIsInstance(job["optimizer"]["lr"], float)
        self.assertEqual(make_job(pando.SGD(0.1, 0.9, nesterov=True), pando.CosineAnnealingLR(1e-5))["schedule"],
                         {"type": "cosine", "min_lr": 1e-5, "warmup_steps": 0})

    def test_scalars_of_other_libraries_are_numbers(self):
        kinds = [torch.tensor]
        if importlib.util.find_spec("numpy"):
            import numpy
            kinds += [numpy.array, lambda value: numpy.asarray(value)[()], lambda value: numpy.float32(value)]
        for kind in kinds:
            run = pando.join(make_mlp(), Points(), pando.SGD(kind(0.5), nesterov=kind(1)),
                             schedule=pando.MultiStepLR([kind(2)], gamma=kind(0.25)), epochs=kind(2),
                             global_batch=kind(8), micro_batches=kind(4), evaluate_every_steps=kind(2),
                             clip_norm=kind(1), seed=kind(3), threads=kind(1), drop_last=kind(True),
                             early_stop_patience=kind(2))
            job = tomllib.loads(write_toml(run._sections))
            self.assertEqual(job["train"], {"epochs": 2.0, "global_batch": 8, "micro_batches": 4, "seed": 3,
                                            "last_batch": "drop", "weighted": False, "staleness": 0})
            self.assertEqual((job["optimizer"]["lr"], job["optimizer"]["nesterov"]), (0.5, True))
            self.assertEqual((job["schedule"]["milestones"], job["schedule"]["gamma"]), ([2], 0.25))
            self.assertEqual(job["eval"], {"every_steps": 2, "early_stop_patience": 2})
        pando.seed(kinds[-1](1))

    def test_options_that_are_none_are_left_out(self):
        job = make_job(pando.SGD(), **{"eval.every_steps": None, "train.seed": 2**63 - 1})
        self.assertEqual((job["eval"], job["train"]), ({}, {"steps": 5, "seed": 2**63 - 1}))


class TableTest(unittest.TestCase):
    def test_order_and_kinds(self):
        model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2, momentum=0.3), nn.BatchNorm1d(2, affine=False),
                              nn.BatchNorm1d(2, track_running_stats=False), nn.InstanceNorm1d(2, affine=True))
        table = TensorTable(model)
        names = [name for name in model.state_dict() if "num_batches" not in name]
        self.assertEqual([entry.name for entry in table.entries], names)
        kinds = {entry.name: (entry.kind, entry.momentum) for entry in table.entries}
        self.assertEqual(kinds["1.running_var"], (lib.STATISTIC, 0.3))
        self.assertEqual(kinds["1.weight"], (lib.PARAMETER, 0.0))

    def test_the_hash_of_a_constant_that_is_not_contiguous(self):
        class Mask(nn.Module):
            def __init__(self, mask):
                super().__init__()
                self.scale = nn.Parameter(torch.ones(1))
                self.register_buffer("mask", mask)

        def hash_bytes(data, **_):
            reused = [torch.zeros(values.shape) for _ in range(4)]  # memory that was freed too early
            read.append(bytes(data) if reused else b"")
            return mock.MagicMock()
        values, read = torch.randn(300, 20), []
        with mock.patch("pando_train._tensors.hashlib") as hashlib:
            hashlib.blake2b = hash_bytes
            TensorTable(Mask(values)).describe_constants()
            TensorTable(Mask(values.t().contiguous().t())).describe_constants()
        self.assertTrue(read[0] == read[1])

    def test_a_scalar_and_a_constant(self):
        class Scaled(nn.Module):
            def __init__(self, value):
                super().__init__()
                self.scale = nn.Parameter(torch.tensor(2.0))
                self.register_buffer("mask", torch.tensor([True, value]))
        hashes = [TensorTable(Scaled(value)).describe_constants() for value in (True, False, True)]
        self.assertEqual(hashes[0], hashes[2])
        self.assertNotEqual(hashes[0], hashes[1])


class ScriptTest(unittest.TestCase):
    def second(self, text, head="import pando_train as pando\n"):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(head + text)
            file.flush()
            with mock.patch.dict(sys.modules, __main__=types.SimpleNamespace(__file__=file.name)):
                return find_second_join()

    def test_a_second_join_that_certainly_follows_is_found_before_the_first(self):
        join = "run = pando.join(m, d)\n"
        self.assertEqual(self.second(join + join), 3)
        self.assertEqual(self.second(join + "for x in run.loader():\n    pass\n" + join), 5)
        self.assertEqual(self.second(f"if __name__ == '__main__':\n    {join}    {join}"), 4)
        self.assertEqual(self.second(f"def train(m):\n    {join}train(a)\ntrain(b)\n"), 3)
        self.assertEqual(self.second(f"def main():\n    {join}    {join}main()\n"), 4)
        self.assertEqual(self.second("join(m, d)\njoin(m, d)\n", "from pando_train import join\n"), 3)

    def test_a_join_that_may_be_the_only_one_is_not(self):
        join = "run = pando.join(m, d)\n"
        for text in (join, f"if a:\n    {join}else:\n    {join}", f"{join}if a:\n    sys.exit()\n{join}",
                     f"def main():\n    {join}    if a:\n        return\n    {join}main()\n",
                     f"def one():\n    {join}def two():\n    {join}one()\n", f"for a in b:\n    {join}",
                     "run = pando.join(a) if x else pando.join(b)\n", f"def one():\n    {join}one() if x else one()\n",
                     f"match a:\n    case 1:\n        {join}    case 2:\n        {join}",
                     "runs = {1: lambda: pando.join(a), 2: lambda: pando.join(b)}\n",
                     f"def main():\n    {join}    if a:\n        exit()\nmain()\n{join}",
                     f"{join}raise SystemExit\n{join}", "os.path.join(a)\nos.path.join(b)\n", "not Python ("):
            self.assertIsNone(self.second(text), text)


class RandomTest(unittest.TestCase):
    def test_generators_are_restored(self):
        seed_generators(5)
        first = torch.rand(2)
        seed_generators(5)
        with kept_generators():
            seed_generators(6)
            self.assertNotEqual(torch.rand(2).tolist(), first.tolist())
        self.assertEqual(torch.rand(2).tolist(), first.tolist())

    def test_seeds_depend_on_everything(self):
        seeds = {derive("a", 1, 2), derive("b", 1, 2), derive("a", 2, 1), derive("a", 1), derive("a", 2**64 - 1)}
        self.assertEqual(len(seeds), 5)
        self.assertEqual(derive("forward", 1, 2, 3), 9095634111082505894)  # of this release, on any machine


class WeightsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = f"{folder.name}/w.safetensors"

    def test_all_types_come_back(self):
        tensors = {"a": torch.randn(3, 2).t(), "b": torch.tensor(7), "c": torch.zeros(0, 3), "d": torch.tensor([True]),
                   "e": torch.randn(5).bfloat16()}
        write_safetensors(self.path, tensors)
        values, _ = read_safetensors(self.path)
        self.assertEqual(list(values), list(tensors))
        self.assertTrue(all(torch.equal(values[name], tensors[name]) for name in tensors))
        self.assertEqual(os.listdir(os.path.dirname(self.path)), ["w.safetensors"])

    def test_damaged_files_are_named(self):
        write_safetensors(self.path, {"a": torch.zeros(3)})
        whole = Path(self.path).read_bytes()
        for damaged in (b"", b"\xff" * 8, whole[:20], whole[:-1], whole[:8] + b"[" + whole[9:],
                        whole.replace(b"[3]", b"[4]")):
            Path(self.path).write_bytes(damaged)
            with self.assertRaisesRegex(pando.PandoError, "w.safetensors"):
                read_safetensors(self.path)


class LibraryTest(unittest.TestCase):
    def test_structs_have_the_layout_of_the_header(self):
        """Sizes and offsets as the C compiler of x86-64 has them."""
        self.assertEqual(ctypes.sizeof(lib.TensorStruct), 56)
        self.assertEqual(lib.TensorStruct.initial.offset, 48)
        self.assertEqual(ctypes.sizeof(lib.OptionsStruct), 72)
        self.assertEqual(lib.OptionsStruct.kind.offset, 56)
        self.assertEqual(ctypes.sizeof(lib.RunStruct), 48)
        self.assertEqual(ctypes.sizeof(lib.WorkStruct), 48)

    def test_a_missing_library_names_every_place(self):
        with mock.patch.object(lib, "NAME", "libmissing.so"), mock.patch.dict(os.environ):
            os.environ.pop("PANDO_LIBRARY", None)
            with self.assertRaisesRegex(pando.PandoError, "PANDO_LIBRARY.*pando_train.*build/embed.*LD_LIBRARY_PATH"):
                lib.load_library()

    def test_a_wrong_variable_is_named(self):
        with mock.patch.dict(os.environ, PANDO_LIBRARY="/nowhere.so"):
            with self.assertRaisesRegex(pando.PandoError, "PANDO_LIBRARY is /nowhere.so"):
                lib.load_library()


class LaunchTest(unittest.TestCase):
    def start(self, script):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        program = Path(folder.name, "pando")
        program.write_text("#!/bin/sh\n" + script, encoding="utf-8")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        with mock.patch.dict(os.environ, PANDO_PROGRAM=str(program)):
            return OwnRun()

    def test_the_endpoint_comes_through_the_pipe(self):
        own = self.start('echo "ipc:///tmp/$1-$2-$4-$6" > "$8"; exec sleep 100')
        self.assertEqual(own.endpoint, "ipc:///tmp/run---attach-1-1")
        own.close()
        self.assertIsNotNone(own._process.poll())

    def test_a_child_that_ends_is_noticed(self):
        with self.assertRaisesRegex(pando.PandoError, "ended before its scheduler listened"):
            self.start("exit 3")

    def test_an_interruption_while_it_starts_ends_the_child(self):
        closed, close = [], OwnRun.close
        with mock.patch.object(OwnRun, "close", lambda own: closed.append(own) or close(own)), \
                mock.patch("pando_train._launch.select.select", side_effect=KeyboardInterrupt):
            with self.assertRaises(KeyboardInterrupt):
                self.start("exec sleep 100")
        self.assertIsNotNone(closed[0]._process.poll())

    def test_a_forked_child_does_not_end_its_parent_s_run(self):
        own = self.start('echo x > "$8"; exec sleep 100')
        with mock.patch("pando_train._launch.os.getpid", return_value=1):
            own.close()
        self.assertIsNone(own._process.poll())
        own.close()

    def test_any_error_of_the_start_is_named(self):
        with mock.patch("pando_train._launch.subprocess.Popen", side_effect=subprocess.SubprocessError("preexec_fn")):
            with self.assertRaisesRegex(pando.PandoError, "cannot start pando run: preexec_fn"):
                self.start("exit 0")

    def test_a_program_that_cannot_run(self):
        with mock.patch.dict(os.environ, PANDO_PROGRAM=str(ROOT)):
            with self.assertRaisesRegex(pando.PandoError, "cannot start pando run"):
                OwnRun()


FORKED = """
import os
import torch
from pando_train._preload import fork_workers

torch.set_num_threads(1)  # as join does

class Keeper:  # the collector alone frees it
    def __init__(self):
        self.file, self.itself = open("kept", "ab"), self

    def __del__(self):
        self.file.write(b"closed\\n")

keeper, log = Keeper(), open("log", "a")

def note(text):
    log.write(text + "\\n")
    keeper.file.write(text.encode() + b"\\n")

note("before")
with open("opened", "a") as opened:
    opened.write("before\\n")
    try:
        fork_workers()
    finally:
        note("worker " + os.environ["NUMBER"])
        opened.write("after\\n")
"""


class PreloadTest(unittest.TestCase):
    def test_files_opened_before_the_fork_keep_their_lines_and_repeat_none(self):
        PR_SET_CHILD_SUBREAPER = 36
        libc = ctypes.CDLL(None)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.addCleanup(libc.prctl, PR_SET_CHILD_SUBREAPER, 0)
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "PANDO_PRELOAD": str(theirs.fileno())}
            with ours, theirs, subprocess.Popen([sys.executable, "-c", FORKED], env=environment, cwd=folder,
                                                pass_fds=[theirs.fileno()]) as preloaded:
                for number in (1, 2):
                    ours.send(f"\0NUMBER={number}".encode())
                    self.assertEqual(os.waitpid(int(ours.recv(64)), 0)[1], 0)
                ours.shutdown(socket.SHUT_WR)
                self.assertEqual(preloaded.wait(60), 0)
            for name, lines in (("log", ["before", "worker 1", "worker 2"]), ("opened", ["before", "after", "after"]),
                                ("kept", ["before", "worker 1", "closed", "worker 2", "closed"])):
                self.assertEqual(Path(folder, name).read_text().split("\n")[:-1], lines)


class PlainUseTest(unittest.TestCase):
    def test_a_joined_module_is_usable_before_the_loop(self):
        model = make_mlp()
        pando.join(model, Points(), pando.SGD(lr=0.1), epochs=1)
        self.assertEqual(model(torch.zeros(2, 4)).shape, (2, 3))


if __name__ == "__main__":
    unittest.main()
