"""Runs with the real library and processes: bits, torch.optim in double precision, failures."""
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

from networks import CLASS_WEIGHTS, Pictures, make_lenet5, make_picture_mlp, make_vit
from support import F, ROOT, nn, pando, torch

PROGRAM = os.environ.get("PANDO_PROGRAM", str(ROOT / "build" / "cli" / "pando"))
LIBRARY = os.environ.get("PANDO_LIBRARY", str(ROOT / "build" / "embed" / "libpando_worker.so"))
SCRIPT = str(Path(__file__).with_name("train_script.py"))
REPORT_SCRIPT = str(Path(__file__).with_name("report_script.py"))
IS_BUILT = os.path.exists(PROGRAM) and os.path.exists(LIBRARY)
STEPS = 24
KILLS = "kill worker at step 4; kill server at step 8; kill worker at step 12; kill scheduler at step 16"
# Measured: 6e-5 (SGD) and 7e-4 (Adam) at most.
SGD_DIFFERENCE, ADAM_DIFFERENCE = 1e-3, 3e-3

if not IS_BUILT:
    print(f"SKIPPED: tests of the real library: {PROGRAM} and {LIBRARY} do not exist", file=sys.stderr)


def find_children(pid):
    """The processes of `pando run`. They end with it, one soon after another."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def find_preloaded(pid):
    """The first child with this variable; the workers forked from it, which inherit it, come behind."""
    return next(child for child in find_children(pid)
                if b"PANDO_PRELOAD=" in Path(f"/proc/{child}/environ").read_bytes())


def is_gone(pid):
    """No such process any more, or only its exit status is left."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@unittest.skipUnless(IS_BUILT, "the library is not built")
class RealCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        patch = mock.patch.dict(os.environ, PANDO_PROGRAM=PROGRAM, PANDO_LIBRARY=LIBRARY)
        patch.start()
        self.addCleanup(patch.stop)
        os.environ.pop("PANDO_SCHEDULER", None)

    def start_process(self, command, folder):
        """Starts a command whose output is read through a pipe; it ends with the test."""
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder,
                                   env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def finish(self, process, expected):
        text = process.communicate(timeout=120)[0]
        self.assertEqual(process.returncode, expected, text)
        return text

    def run_program(self, name, flags, arguments, expected=0, script=SCRIPT):
        """`pando run`; returns its summary and what it printed."""
        command = [PROGRAM, "run", "--run-dir", str(self.folder / name), *flags, sys.executable, script,
                   *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=self.folder)
        self.assertEqual(done.returncode, expected, done.stdout + done.stderr)
        return json.loads((self.folder / name / "summary.json").read_text()), done.stdout + done.stderr


class BitsTest(RealCase):
    def test_the_weights_depend_on_nothing_that_may_change(self):
        for network in ("mlp", "norm", "vit"):
            runs = ((["--workers", "1", "--servers", "1", "--transport", "tcp"], 0),
                    (["--workers", "2", "--servers", "2"], 2),
                    (["--workers", "3", "--servers", "2", "--snapshot-every", "5", "--chaos", KILLS], 1))
            hashes = []
            for number, (flags, loader_workers) in enumerate(runs):
                name = f"{network}-{number}"
                summary, text = self.run_program(name, flags, [network, STEPS, loader_workers])
                hashes.append(summary["weights_hash"])
                saved = {path.read_bytes() for path in (self.folder / name).glob("saved-*.safetensors")}
                self.assertEqual(len(saved), 1, text)
            self.assertEqual(len(set(hashes)), 1, f"{network}: {hashes}")

    def test_staleness_changes_the_weights_and_processes_do_not(self):
        hashes = set()
        for staleness, flags in (("1", ["--workers", "1", "--servers", "1"]),
                                 ("1", ["--workers", "2", "--servers", "2"]),
                                 ("1", ["--workers", "3", "--servers", "2", "--snapshot-every", "5", "--chaos", KILLS]),
                                 ("0", ["--workers", "1", "--servers", "1"])):
            with mock.patch.dict(os.environ, TEST_STALENESS=staleness):
                summary, _ = self.run_program(f"stale-{len(flags)}-{staleness}-{flags[1]}", flags, ["norm", STEPS, 0])
            hashes.add((staleness, summary["weights_hash"]))
        self.assertEqual(len(hashes), 2, hashes)
        self.assertEqual(len({bits for _, bits in hashes}), 2, hashes)

    def test_everything_is_killed_and_resumed_with_other_numbers(self):
        expected, _ = self.run_program("whole", ["--workers", "1", "--servers", "1"], ["vit", STEPS, 0])
        command = [PROGRAM, "run", "--run-dir", str(self.folder / "cut"), "--workers", "2", "--servers", "2",
                   "--snapshot-every", "4", sys.executable, SCRIPT, "vit", str(STEPS), "2"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.folder,
                                   start_new_session=True)
        metrics = self.folder / "cut" / "metrics.csv"
        wait_until(lambda: metrics.exists() and metrics.read_text().count("\n") > 8)
        children = find_children(process.pid)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        wait_until(lambda: all(is_gone(child) for child in children))
        done = subprocess.run([PROGRAM, "resume", str(self.folder / "cut"), "--workers", "1", "--servers", "1"],
                              capture_output=True, text=True, timeout=120, check=False, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        summary = json.loads((self.folder / "cut" / "summary.json").read_text())
        self.assertEqual(summary["weights_hash"], expected["weights_hash"])
        self.assertEqual(summary["generation"], 1)


class ReportTest(RealCase):
    def report(self, name, flags, *arguments):
        """A run of report_script.py; returns its summary, the calls of its function and the kept weights."""
        folder = self.folder / f"{name}-kept"
        folder.mkdir()
        summary, text = self.run_program(name, flags, [folder, *arguments], script=REPORT_SCRIPT)
        self.assertIn("the run ends with version 15: version 15 is good enough", text)
        self.assertEqual((summary["steps"], summary["stopped_early"], summary["status"]), (15, True, "completed"))
        calls = [line.split() for line in (folder / "calls").read_text().splitlines()]
        kept = {path.stem: {key: value.numpy().tobytes() for key, value in torch.load(path).items()}
                for path in folder.glob("*.pt")}
        self.assertEqual(sorted(map(int, kept)), [3, 6, 9, 12, 15])
        return summary, calls, kept

    def test_each_version_is_reported_once_with_the_same_bits_anywhere(self):
        expected, calls, kept = self.report("one", ["--workers", "1", "--servers", "1"])
        self.assertEqual([int(version) for version, *_ in calls], [3, 6, 9, 12, 15])
        for name, flags in (("three", ["--workers", "3", "--servers", "2"]),
                            ("forked", ["--workers", "3", "--servers", "1", "--preload"])):
            summary, others, other_kept = self.report(name, flags)
            self.assertEqual(summary["weights_hash"], expected["weights_hash"])
            self.assertEqual([(version, loss) for version, _, _, loss in others],
                             [(version, loss) for version, _, _, loss in calls])
            self.assertEqual(other_kept, kept)

    def test_the_process_of_the_function_is_killed_and_another_one_calls_it(self):
        expected, _, kept = self.report("whole", ["--workers", "1", "--servers", "1"])
        for workers in ("1", "3"):
            name = f"killed-{workers}"
            summary, calls, other_kept = self.report(name, ["--workers", workers, "--servers", "2"], 6)
            self.assertEqual([int(version) for version, *_ in calls], [3, 6, 6, 9, 12, 15])
            self.assertEqual(len({pid for version, _, pid, _ in calls if version == "6"}), 2)
            self.assertEqual((summary["weights_hash"], other_kept), (expected["weights_hash"], kept))


class EarlyStopTest(RealCase):
    def test_the_run_ends_when_the_sum_has_not_improved(self):
        os.chdir(self.folder)
        self.addCleanup(os.chdir, ROOT)
        for mode, last in (("max", 6), ("min", 12)):  # a sum that falls at each evaluation
            model, calls = make_picture_mlp(), itertools.count()
            run = pando.join(model, Pictures(), pando.SGD(lr=0.1), steps=12, global_batch=8, evaluate_every_steps=3,
                             early_stop_patience=1, early_stop_metric="rest", early_stop_mode=mode)
            run.evaluate_with(Pictures(8, 0.0), lambda x, y: {"rest": -next(calls), "correct": 0})
            for x, y in run.loader():
                with run.micro_batch():
                    F.cross_entropy(model(x), y).backward()
            self.assertEqual(run.metrics()[-1]["step"], last)


class MetricsTest(RealCase):
    def test_a_loop_reads_the_rows_of_its_run(self):
        os.chdir(self.folder)
        self.addCleanup(os.chdir, ROOT)
        run = pando.join(make_picture_mlp(), Pictures(), pando.SGD(lr=0.1), steps=6, global_batch=8)
        with self.assertRaisesRegex(pando.PandoError, "was called before the loop"):
            run.metrics()
        for x, y in run.loader():
            with run.micro_batch() as mb:
                loss = F.cross_entropy(run.table.module(x), y)
                loss.backward()
                mb.log(loss=loss)
        rows = run.metrics()
        self.assertEqual([row["step"] for row in rows], [1, 2, 3, 4, 5, 6])
        self.assertTrue(all(row["loss"] > 0 and row["test_loss"] is None for row in rows))


class PreloadTest(RealCase):
    def test_forked_workers_make_the_same_weights_and_write_their_own_logs(self):
        expected, _ = self.run_program("plain", ["--workers", "1", "--servers", "1"], ["vit", STEPS, 0])
        flags = ["--preload", "--workers", "2", "--servers", "2", "--snapshot-every", "5", "--chaos", KILLS]
        summary, text = self.run_program("forked", flags, ["vit", STEPS, 2])
        self.assertEqual(summary["weights_hash"], expected["weights_hash"])
        self.assertNotIn("--preload", text)
        logs = self.folder / "forked" / "logs"
        self.assertEqual((logs / "preloaded.log").read_text(), "")

    def test_the_preloaded_process_is_killed_and_its_workers_go_on(self):
        expected, _ = self.run_program("plain", ["--workers", "1", "--servers", "1"], ["mlp", 400, 0])
        command = [PROGRAM, "run", "--run-dir", str(self.folder / "cut"), "--workers", "2", "--servers", "1",
                   "--preload", sys.executable, SCRIPT, "mlp", "400", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=self.folder,
                              text=True) as process:
            metrics = self.folder / "cut" / "metrics.csv"
            wait_until(lambda: metrics.exists() and metrics.read_text().count("\n") > 2)
            os.kill(find_preloaded(process.pid), signal.SIGKILL)
            text = process.communicate(timeout=120)[0]
        self.assertEqual(process.returncode, 0, text)
        self.assertIn("--preload: the preloaded process ended with signal 9 (SIGKILL)", text)
        summary = json.loads((self.folder / "cut" / "summary.json").read_text())
        self.assertEqual(summary["weights_hash"], expected["weights_hash"])

    def test_a_script_with_threads_is_started_as_without_preload(self):
        flags = ["--preload", "--workers", "1", "--servers", "1"]
        _, text = self.run_program("threads", flags, ["mlp", STEPS, 0, -1, "thread"])
        self.assertIn("--preload: workers are started, not forked: the script has threads before run.loader(): "
                      "of the script", text)


class FailureTest(RealCase):
    def test_an_error_of_the_script_is_the_root_cause(self):
        summary, text = self.run_program("failed", ["--workers", "2", "--servers", "1"], ["mlp", STEPS, 0, 3], 1)
        self.assertEqual(summary["status"], "failed")
        self.assertIn("ValueError: the forty-second picture is upside down", summary["failure"])
        self.assertIn("train_script.py", text)

    def test_a_killed_worker_leaves_no_process(self):
        command = [sys.executable, SCRIPT, "vit", "100000", "2"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=self.folder,
                                   start_new_session=True, text=True)
        next(line for line in process.stdout if line.startswith("step 8"))
        children = find_descendants(process.pid)
        self.assertGreaterEqual(len(children), 5)  # pando run, scheduler, server, two readers
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        wait_until(lambda: all(map(is_gone, children)), 10)


class TorchTest(RealCase):
    def test_twenty_steps_equal_torch_in_double_precision(self):
        nets = {"mlp": make_picture_mlp, "lenet5": make_lenet5, "vit": lambda: make_vit(0.0)}
        optimizers = ((pando.SGD(lr=0.05, momentum=0.9), torch.optim.SGD, dict(momentum=0.9)),
                      (pando.Adam(lr=1e-3), torch.optim.Adam, {}), (pando.AdamW(lr=1e-3), torch.optim.AdamW, {}))
        os.chdir(self.folder)
        self.addCleanup(os.chdir, ROOT)
        largest = {}
        for name, make in nets.items():
            for ours, theirs, options in optimizers:
                first, change = self.train_ours(make, ours)
                expected = train_plain(make, first, lambda p: theirs(p, lr=ours.lr, **options), ours.lr)
                for tensor, difference in compare(change, expected):
                    bound = SGD_DIFFERENCE if ours.TYPE == "sgd" else ADAM_DIFFERENCE
                    self.assertLess(difference, bound, f"{name}, {ours.TYPE}: {tensor}")
                    largest[ours.TYPE] = max(largest.get(ours.TYPE, 0), difference)
        print("largest relative differences:", largest)

    def test_class_weights_equal_torch_in_double_precision(self):
        os.chdir(self.folder)
        self.addCleanup(os.chdir, ROOT)
        ours = pando.SGD(lr=0.05, momentum=0.9)
        first, change = self.train_ours(make_picture_mlp, ours, CLASS_WEIGHTS)
        expected = train_plain(make_picture_mlp, first, lambda p: torch.optim.SGD(p, lr=ours.lr, momentum=0.9), ours.lr,
                               CLASS_WEIGHTS)
        for tensor, difference in compare(change, expected):
            self.assertLess(difference, SGD_DIFFERENCE, tensor)

    def test_torch_s_own_objects_equal_torch_in_double_precision(self):
        os.chdir(self.folder)
        self.addCleanup(os.chdir, ROOT)
        kinds = [("RMSprop", dict(lr=1e-3, momentum=0.5, centered=True, eps=1e-3)), ("Adagrad", dict(lr_decay=0.1)),
                 ("Adadelta", dict(eps=1e-3))]
        if int(torch.__version__.split(".")[0]) >= 2:  # NAdam of 1.13 has another product of momenta
            kinds.append(("NAdam", {}))
        for name, options in kinds:
            def make_optimizer(parameters):
                return getattr(torch.optim, name)(parameters, **options)
            pando.seed(1)
            model = remove_dropout(make_picture_mlp())
            first = {name: value.detach().clone() for name, value in model.named_parameters()}
            optimizer = make_optimizer(model.parameters())
            run = pando.join(model, Pictures(32, 0.0), optimizer, schedule=make_steps(optimizer), schedule_every="step",
                             steps=20, global_batch=32, micro_batches=4)
            for x, y in run.loader():
                with run.micro_batch():
                    F.cross_entropy(model(x), y).backward()
            change = {name: value.detach() - first[name] for name, value in model.named_parameters()}
            largest = 0.0
            for tensor, difference in compare(change, train_plain(make_picture_mlp, first, make_optimizer, None)):
                self.assertLess(difference, ADAM_DIFFERENCE, f"{name}: {tensor}")
                largest = max(largest, difference)
            print(name, "largest relative difference:", largest)

    def train_ours(self, make, optimizer, class_weights=None):
        """The first weights, and their change by 20 steps with all samples."""
        pando.seed(1)
        model = remove_dropout(make())
        first = {name: value.detach().clone() for name, value in model.named_parameters()}
        run = pando.join(model, Pictures(32, 0.0), optimizer, schedule=pando.OneCycle(), steps=20, global_batch=32,
                         micro_batches=4, weighted=class_weights is not None)
        for x, y in run.loader():
            with run.micro_batch(weight=None if class_weights is None else class_weights[y].sum()):
                F.cross_entropy(model(x), y, weight=class_weights).backward()
        return first, {name: value.detach() - first[name] for name, value in model.named_parameters()}


def make_steps(optimizer):
    return torch.optim.lr_scheduler.StepLR(optimizer, 7, gamma=0.5)


def train_plain(make, first, make_optimizer, lr, class_weights=None):
    """With a cycle up to `lr`, or with the rate in steps if it is None."""
    model = remove_dropout(make()).double()
    model.load_state_dict(first)
    data = Pictures(32, 0.0)
    optimizer = make_optimizer(model.parameters())
    schedule = make_steps(optimizer) if lr is None else \
        torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=20)
    for _ in range(20):
        optimizer.zero_grad()
        weights = None if class_weights is None else class_weights.double()
        F.cross_entropy(model(data.x.double()), data.y, weight=weights).backward()
        optimizer.step()
        if schedule.last_epoch < 19:
            schedule.step()
    return {name: value.detach() - first[name] for name, value in model.named_parameters()}


def compare(change, expected):
    """(name, relative difference) of each tensor's change."""
    for name, value in expected.items():
        ours = change[name].double()
        if "in_proj_bias" in name:
            # The gradient of the keys' bias is 0, so that Adam scales its rounding errors up.
            third = len(value) // 3
            ours, value = (torch.cat([part[:third], part[2 * third:]]) for part in (ours, value))
        yield name, ((ours - value).norm() / value.norm()).item()


def remove_dropout(model):
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def find_descendants(parent):
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True, text=True, check=False)
    pids = [int(line) for line in children.stdout.split()]
    return pids + [pid for child in pids for pid in find_descendants(child)]


def wait_until(condition, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not true within {timeout_s} s")
        time.sleep(0.05)


if __name__ == "__main__":
    unittest.main()
