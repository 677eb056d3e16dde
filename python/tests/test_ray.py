"""pando_train.ray with a fake Ray: whole runs with real processes, and what each mistake prints."""
import functools
import importlib
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

from fake_ray import NODE, FakeRay, RunConfig, ScalingConfig
from support import ROOT, pando

PROGRAM = os.environ.get("PANDO_PROGRAM", str(ROOT / "build" / "cli" / "pando"))
LIBRARY = os.environ.get("PANDO_LIBRARY", str(ROOT / "build" / "embed" / "libpando_worker.so"))
IS_BUILT = os.path.exists(PROGRAM) and os.path.exists(LIBRARY)
STEPS, SNAPSHOT_EVERY, LOOP_STEPS = 400, 50, 200
FLAGS = ["--model", "mlp", "--dataset", "synthetic-digits", "--steps", str(STEPS), "--set",
         "data.synthetic_train_samples=2000", "--set", "data.synthetic_test_samples=200", "--snapshot-every",
         str(SNAPSHOT_EVERY)]
DEADLINE_S = 240
SPY = """
import json, os
keys = os.environ["PANDO_KEYS"]
seen = {"words": open("/proc/self/cmdline").read().split(chr(0)), "mode": os.stat(keys).st_mode, "keys": {
    name: [os.lstat(keys + "/" + name).st_mode, open(keys + "/" + name).read()] for name in os.listdir(keys)}}
open(os.environ["SPY"], "w").write(json.dumps(seen))
"""


def train(config):
    """A train loop: it stops at a step that the configuration may name."""
    sys.path.insert(0, config["tests"])
    from networks import MAKERS, Pictures
    from support import F
    pando.seed(1)
    model = MAKERS["mlp"]()
    run = pando.join(model, Pictures(), pando.SGD(lr=0.1), steps=LOOP_STEPS, global_batch=16, micro_batches=4)
    for x, y in run.loader():
        with run.micro_batch() as mb:
            if mb.step == config["fail_at"]:
                raise ValueError("the forty-second picture is upside down")
            F.cross_entropy(model(x), y).backward()


def describe(actors):
    children = {name: actor.instance._child for name, actor in actors.items()}
    return ", ".join(f"{name}: {child and (child.pid, child.returncode)}" for name, child in children.items())


class RayCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.ray = FakeRay()
        for patch in (self.ray.install(), mock.patch.dict(os.environ, PANDO_PROGRAM=PROGRAM, PANDO_LIBRARY=LIBRARY)):
            patch.start()
            self.addCleanup(patch.stop)
        sys.modules.pop("pando_train.ray", None)
        self.module = importlib.import_module("pando_train.ray")
        self.addCleanup(sys.modules.pop, "pando_train.ray", None)

    def make_trainer(self, loop, workers=2, max_failures=0, **options):
        config = RunConfig(storage_path=str(self.folder / "results"))
        config.failure_config.max_failures = max_failures
        return self.module.PandoTrainer(loop, scaling_config=ScalingConfig(workers), run_config=config, **options)

    def make_job(self):
        text = subprocess.run([PROGRAM, "train", *FLAGS, "--dry-run"], capture_output=True, text=True, check=True)
        (self.folder / "job.toml").write_text(text.stdout)
        return self.folder / "job.toml"


class ErrorTest(RayCase):
    def assert_fails(self, text, make):
        with self.assertRaisesRegex(pando.PandoError, text):
            make()

    def test_every_mistake_is_named(self):
        cases = {
            "train_loop is 7: pass a function": lambda: self.make_trainer(7),
            "no-job.toml'.*the path of a job file": lambda: self.make_trainer("no-job.toml"),
            "train_loop_config is for a function": lambda: self.make_trainer(__file__, train_loop_config={}),
            "cannot be sent to the workers": lambda: self.make_trainer(lambda: None),  # the fake uses plain pickle
            "num_workers of ScalingConfig is 0: give a whole number": lambda: self.make_trainer(train, 0),
            "num_workers of ScalingConfig is 'all'": lambda: self.make_trainer(train, "all"),
            "num_servers is 0": lambda: self.make_trainer(train, num_servers=0),
            "scaling_config is a int": lambda: self.module.PandoTrainer(train, scaling_config=4),
        }
        for text, make in cases.items():
            with self.subTest(text):
                self.assert_fails(text, make)

    def test_storage_that_cannot_be_written(self):
        (self.folder / "results").write_text("a file")
        self.assert_fails("cannot write to .*results.run .*: give RunConfig another storage_path",
                          self.make_trainer(train).fit)

    def test_storage_elsewhere(self):
        trainer = self.module.PandoTrainer(train, run_config=RunConfig(storage_path="s3://bucket/results"))
        self.assert_fails("s3://bucket/results.*a local or mounted folder", trainer.fit)

    def test_no_ray(self):
        sys.modules.pop("pando_train.ray")
        with mock.patch.dict(sys.modules, {"ray": None}):
            with self.assertRaisesRegex(ImportError, "pip install 'ray"):
                importlib.import_module("pando_train.ray")


class PartsTest(RayCase):
    def test_a_signal_to_a_process_that_has_ended_does_not_wait(self):
        process = self.module.Process("worker-0", self.folder.name)
        with mock.patch.object(self.module, "find_program", lambda: "true"):
            self.assertEqual(process.run(self.module.Spec("worker", ("worker",))), 0)
        process.send(signal.SIGKILL)

    def run_spy(self, spec):
        """Returns what an actor's process sees of itself: its arguments, and its keys with their modes."""
        spy = self.folder / "spy.py"
        spy.write_text(f"#!{sys.executable}\n" + SPY)
        spy.chmod(0o700)
        os.environ["SPY"] = str(self.folder / "seen")
        process = self.module.Process("worker-0", "pando-0123456789abcdef")
        with mock.patch.object(self.module, "find_program", lambda: str(spy)):
            self.assertEqual(process.run(spec), 0)
        return json.loads((self.folder / "seen").read_text())

    def own_temporary_folder(self):
        shared = self.folder / "tmp"
        shared.mkdir()
        for patch in (mock.patch.object(tempfile, "tempdir", str(shared)), mock.patch.dict(os.environ)):
            patch.start()
            self.addCleanup(patch.stop)
        return shared

    def test_a_folder_that_another_user_has_created_gets_no_keys(self):
        shared = self.own_temporary_folder()
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        guessed = shared / "pando-0123456789abcdef-worker-0"
        for make in (lambda: guessed.mkdir(mode=0o777), lambda: guessed.symlink_to(elsewhere)):
            make()
            seen = self.run_spy(self.module.Spec("worker", ("worker",), keys={"member.key": b"secret"}))
            self.assertEqual(seen["keys"], {"member.key": [0o100600, "secret"]})
            self.assertEqual(seen["mode"], 0o40700)
            self.assertEqual(list(guessed.iterdir()), [])
            guessed.unlink() if guessed.is_symlink() else guessed.rmdir()
        self.assertEqual(list(shared.iterdir()), [])

    def test_the_folder_of_a_killed_actor_is_removed_by_the_next(self):
        shared = self.own_temporary_folder()
        names = [Path(tempfile.mkdtemp(prefix=f"pando-0123456789abcdef-{name}-")) for name in ("worker-0", "worker-01")]
        (names[0] / "member.key").write_text("secret")
        self.run_spy(self.module.Spec("worker", ("worker",)))
        self.assertEqual(list(shared.iterdir()), [names[1]])

    def test_the_loop_comes_without_a_name(self):
        shared = self.own_temporary_folder()
        (self.folder / "pickle.py").write_text("raise SystemExit('the module of another user')")
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        os.environ["SPY"] = str(self.folder / "seen")
        loop = functools.partial(exec, SPY)
        for size in (0, 1 << 22):  # more than a pipe holds
            spec = self.module.Spec("worker", (), loop=pickle.dumps(functools.partial(loop, {"size": bytes(size)})))
            self.assertEqual(self.module.Process("worker-0", "pando-0123456789abcdef").run(spec), 0)
            words = json.loads((self.folder / "seen").read_text())["words"]
            self.assertNotIn("/", " ".join(words[2:]).replace("-c", ""))
        self.assertEqual(list(shared.iterdir()), [])

    def test_last_row(self):
        path = self.folder / "metrics.csv"
        self.assertEqual(self.module.read_last_row(path), {})
        for text, step in (("", None), ("1,0.5,0.1\n", "1"), ("1,,0.1\n", "1"), ("1,0.5,0.1\n1,,\n", "1"),
                           ("1,0.5,0.1\n2,0.", "1"), ("7,,0.1\n" * 5000, "7"), ("7,,0.1\n" + "61.96,,\n" * 900, None)):
            path.write_text("step,loss,lr\n" + text)
            self.assertEqual(self.module.read_last_row(path).get("step"), step, text[:40])

    def test_options_of_an_actor(self):
        options = self.module.actor_options({"CPU": 2, "GPU": 1, "memory": 5, "disk": 3})
        self.assertEqual(options, {"num_cpus": 2, "num_gpus": 1, "memory": 5, "resources": {"disk": 3}})


@unittest.skipUnless(IS_BUILT, "the library is not built")
class FitTest(RayCase):
    def start(self, trainer):
        """fit() in a thread. The returned function waits for its result."""
        results = []
        thread = threading.Thread(target=lambda: results.append(trainer.fit()))
        thread.start()

        def finish():
            thread.join(DEADLINE_S)
            self.assertTrue(results, f"fit() has not returned within {DEADLINE_S} s; {describe(self.ray.actors)}")
            return results[0]
        return finish

    def wait_for_step(self, step):
        path = self.folder / "results" / "run" / "run" / "metrics.csv"
        deadline = time.monotonic() + DEADLINE_S
        while int(self.module.read_last_row(path).get("step", 0)) < step:
            self.assertLess(time.monotonic(), deadline, f"step {step} is not reached")
            time.sleep(0.02)

    def expected_hash(self, job):
        run_dir = self.folder / "serial"
        subprocess.run([PROGRAM, "train", job, "--serial", "--run-dir", run_dir], capture_output=True, check=True)
        return json.loads((run_dir / "summary.json").read_text())["weights_hash"]

    def test_dead_actors_and_processes_are_started_again_alone(self):
        job = self.make_job()
        finish = self.start(self.make_trainer(str(job), (1, 2)))
        self.wait_for_step(20)
        self.ray.actors["worker-0"].lose()
        self.wait_for_step(60)
        self.ray.actors["server-1"].lose()
        self.wait_for_step(100)
        os.kill(self.ray.actors["scheduler-0"].instance._child.pid, signal.SIGKILL)
        result = finish()
        self.assertEqual(result.metrics["weights_hash"], self.expected_hash(job))
        self.assertEqual((result.metrics["steps"], result.metrics["rollbacks"]), (STEPS, 0))
        self.assertTrue(Path(result.checkpoint, "final.safetensors").exists())
        self.assertIn("pando_step", self.ray.gauges)

    def test_a_draining_node_is_left_in_order(self):
        job = self.make_job()
        finish = self.start(self.make_trainer(str(job)))
        self.wait_for_step(20)
        self.ray.draining[NODE] = 0
        deadline = time.monotonic() + DEADLINE_S
        while not {"worker-3", "server-3"} <= self.ray.actors.keys():
            self.assertLess(time.monotonic(), deadline, "the processes have not moved")
            time.sleep(0.02)
        self.ray.draining.clear()
        result = finish()
        self.assertEqual(result.metrics["weights_hash"], self.expected_hash(job))
        self.assertEqual(result.metrics["rollbacks"], 0)

    def test_a_train_loop_whose_scheduler_dies(self):
        config = {"tests": str(ROOT / "python" / "tests"), "fail_at": None}
        finish = self.start(self.make_trainer(train, train_loop_config=config))
        self.wait_for_step(20)
        self.ray.actors["scheduler-0"].lose()
        metrics = finish().metrics
        self.assertEqual((metrics["steps"], metrics["rollbacks"]), (LOOP_STEPS, 0))

    def test_an_error_of_the_loop_ends_the_run_after_the_last_retry(self):
        config = {"tests": str(ROOT / "python" / "tests"), "fail_at": 7}
        with self.assertRaisesRegex(pando.RunFailed, "ValueError: the forty-second picture is upside down"):
            self.make_trainer(train, max_failures=1, train_loop_config=config).fit()


if __name__ == "__main__":
    unittest.main()
