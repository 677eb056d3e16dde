"""Data, evaluation, and the ends of a run, with the fake library."""
import contextlib
import io
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import unittest
from collections import deque
from pathlib import Path
from unittest import mock

from support import FakeCase, Points, make_mlp, nn, pando, torch, F
from pando_train._state import ModuleState


class Failing(Points):
    def __getitem__(self, index):
        if index == 5:
            raise ValueError("picture 5 cannot be decoded")
        return super().__getitem__(index)


class Dying(Points):
    def __getitem__(self, index):
        os.kill(os.getpid(), signal.SIGKILL)


class Settings(Points):
    def __getitem__(self, index):
        flushes = (torch.full((1,), 1e-40) * 1.0).item() == 0.0
        modes = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), flushes, 0
        return torch.tensor(modes, dtype=torch.float32), index % 3


def count_correct(run, model):
    run.evaluate_with(Points(11), lambda x, y: dict(correct=(model(x).argmax(1) == y).sum(),
                                                    loss_sum=F.cross_entropy(model(x), y, reduction="sum")),
                      batch_size=4)


class Keeping(nn.Module):
    """Its outputs depend on what it has kept of earlier batches: a list, a new tensor, one that is changed in place."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 3)
        self.seen, self.mean, self.count = [], torch.zeros(3), torch.zeros(1)

    def forward(self, x):
        y = self.inner(x)
        self.seen.append(y.detach().mean())
        self.mean = 0.9 * self.mean + y.detach().mean(0)
        self.count += 1
        self.newest = y
        return y + self.mean + (self.count + sum(self.seen)) / 100


class KeptStateTest(FakeCase):
    def test_abandoned_work_and_evaluations_leave_a_module_s_attributes_as_they_were(self):
        expected = self.train(Keeping, steps=8).bits()
        self.new_fake()
        # A step's last work: abandoned work comes again at its step's end, and these outputs depend on the order.
        self.fake.abandon = {(0, 3): "give:1", (1, 3): "load:1", (5, 3): "give:2", (6, 3): "finish"}
        self.assertEqual(self.train(Keeping, steps=8, evaluate=count_correct).bits(), expected)
        self.assertEqual(self.fake.abandon, {})

    def test_an_attribute_that_differs_from_block_to_block_is_a_suspect(self):
        class Kept(nn.Sequential):
            def forward(self, x):
                self.mask = torch.ones(len(x), 1)
                self.hidden, self.seen = super().forward(x), [self.mask]
                return self.hidden * self.mask
        pando.seed(1)
        model = Kept(*make_mlp())
        run = self.join(model)
        for x, y in run.loader():
            with run.micro_batch():
                F.cross_entropy(model(x), y).backward()
        self.assertIn("attribute Kept.hidden differs", run.state.suspect)

        del Kept.forward
        self.new_fake()
        run = self.join(model)
        for x, y in run.loader():
            with run.micro_batch():
                F.cross_entropy(model(x), y).backward()
        self.assertEqual(run.state.suspect, "")

    def test_containers_of_any_kind_and_new_attributes(self):
        class Module(nn.Module):
            def __init__(self):
                super().__init__()
                self.items = [1], {"a": 1}, {1}, deque([1, 2])
                self.numbers, self.table, self.names, self.last = [1], {"a": 1}, {1}, deque([1, 2], maxlen=2)

        module = Module()
        state = ModuleState(module)
        state.save()
        numbers = module.numbers
        module.numbers.append(2)
        module.table["b"] = 2
        module.names.clear()
        module.last.append(3)
        module.new = 1
        del module.items
        state.restore()
        self.assertIs(module.numbers, numbers)
        self.assertEqual((module.numbers, module.table, module.names, list(module.last)), ([1], {"a": 1}, {1}, [1, 2]))
        self.assertFalse(hasattr(module, "new"))
        self.assertEqual(len(module.items), 4)


class FirstLinesTest(FakeCase):
    def test_a_run_with_batch_norm_says_over_how_many_samples_it_normalises(self):
        def make_model():
            return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
        for make, expected in ((make_model, "a micro-batch, 2 samples"), (make_mlp, "")):
            with contextlib.redirect_stderr(io.StringIO()) as printed:
                self.new_fake()
                self.train(make)
            self.assertEqual("batch norm" in printed.getvalue(), expected != "")
            self.assertIn(expected, printed.getvalue())


class DataTest(FakeCase):
    def test_processes_that_read_ahead_change_no_bit(self):
        data = Points(noise=0.5)
        expected = self.train(data=data, steps=4).bits()
        for workers, guesses in ((1, False), (2, False), (2, True)):
            with self.subTest(workers=workers, wrong_guesses=guesses):
                self.new_fake().wrong_guesses = guesses
                self.fake.abandon = {(1, 2): "give:1", (3, 0): "load:2"}
                self.fake.rollback = {2: 1}
                bits = self.train(data=data, steps=4, num_workers=workers, evaluate=count_correct).bits()
                self.assertEqual(bits, expected)

    def test_killed_processes_that_read_are_replaced(self):
        data = Points(noise=0.5)
        expected = self.train(data=data, steps=6).bits()
        self.new_fake()
        children = []

        def loss(x, y):
            if self.fake.step in (1, 3, 4) and len(children) < self.fake.step:
                children.append(multiprocessing.active_children()[-1])
                children[-1].kill()
            return F.cross_entropy(x, y)
        self.assertEqual(self.train(data=data, steps=6, num_workers=2, loss=loss).bits(), expected)
        self.assertGreaterEqual(len(children), 3)

    def test_processes_that_always_die_end_the_run(self):
        with mock.patch("pando_train._data.TRIES", 1), self.assertRaisesRegex(pando.PandoError, "died 1 times"):
            self.train(data=Dying(), num_workers=1)
        self.assertIn("need more memory", self.fake.failure)

    def test_start_methods_that_import_the_script(self):
        printed = set()
        for method, guard in (("fork", []), ("spawn", ["guarded"]), ("forkserver", ["guarded"]), ("spawn", []),
                              ("forkserver", [])):
            with self.subTest(method=method, guard=guard):
                script = str(Path(__file__).with_name("spawn_script.py"))
                done = subprocess.run([sys.executable, script, method, self.folder, *guard], capture_output=True,
                                      text=True, timeout=120, check=False)
                if method == "fork" or guard:
                    self.assertEqual(done.returncode, 0, done.stderr)
                    printed.add(done.stdout)
                else:
                    self.assertEqual(done.returncode, 1)
                    self.assertIn("PandoError: the processes that read samples end while they start", done.stderr)
                    self.assertIn('    if __name__ == "__main__":\n        main()', done.stderr)
                    self.assertIn("PandoError: pando.join was called in a process that reads samples", done.stderr)
        self.assertEqual(len(printed), 1, printed)

    def test_samples_are_read_with_one_thread_everywhere(self):
        self.addCleanup(torch.set_flush_denormal, False)
        torch.set_flush_denormal(True)
        for workers in (0, 1):
            self.new_fake()
            modes = set()
            for x, y in self.join(nn.Linear(4, 3), Settings(), threads=2).loader(num_workers=workers):
                modes.add((*x.unique(dim=0).flatten().tolist(), torch.get_num_threads()))
                with self.run_.micro_batch():
                    F.cross_entropy(self.run_.table.module(x), y).backward()
            self.assertEqual(modes, {(1.0, 1.0, 1.0, 0.0, 2)})

    def test_a_sample_follows_from_seed_epoch_and_index(self):
        from pando_train._data import Samples
        samples = Samples(Points(noise=1.0), Points(noise=1.0), 1)
        first = samples[False, 0, 3][0]
        samples[False, 0, 4]
        self.assertTrue(torch.equal(samples[False, 0, 3][0], first))
        others = [samples[False, 1, 3][0], samples[True, 0, 3][0], Samples(Points(noise=1.0), None, 2)[False, 0, 3][0]]
        self.assertFalse(any(torch.equal(other, first) for other in others))

    def test_the_loop_has_generators_of_its_micro_batch(self):
        drawn = []
        pando.seed(1)
        model = make_mlp()
        run = self.join(model, Points(noise=1.0))
        for x, y in run.loader():
            before = torch.rand(1).item(), random.random()
            with run.micro_batch() as mb:
                drawn.append((mb.step, mb.index, torch.rand(1).item(), random.random()))
                F.cross_entropy(model(x), y).backward()
            self.assertNotEqual(before, drawn[-1][2:])
        self.assertEqual(len({draw[2] for draw in drawn}), 12)

    def test_an_error_in_the_data_set_is_the_root_cause(self):
        for workers in (0, 1):
            self.new_fake()
            with self.assertRaisesRegex(ValueError, "picture 5 cannot be decoded"):
                self.train(data=Failing(), num_workers=workers, epochs=1, steps=None)
            self.assertIn("picture 5 cannot be decoded", self.fake.failure)
            self.assertIn("__getitem__", self.fake.failure)

    def test_samples_of_any_structure(self):
        class Named(Points):
            def __getitem__(self, index):
                return dict(zip("xy", super().__getitem__(index)))
        pando.seed(1)
        model = make_mlp()
        run = self.join(model, Named())
        run.evaluate_with(Named(), lambda batch: dict(total=model(batch["x"]).sum()))
        for batch in run.loader():
            with run.micro_batch():
                F.cross_entropy(model(batch["x"]), batch["y"]).backward()
        self.assertEqual(list(self.fake.evaluations[-1][1]), ["total"])


class EvaluationTest(FakeCase):
    def test_what_is_not_logged_is_said_to_be_missing(self):
        def log_in_parts(mb, loss):
            mb.log(loss=loss)
            mb.log(correct=3)

        missing = pando._library.NOT_LOGGED
        for log, has_loss, correct in ((lambda mb, loss: None, False, missing),
                                       (lambda mb, loss: mb.log(), False, missing),
                                       (lambda mb, loss: mb.log(loss=loss), True, missing), (log_in_parts, True, 3),
                                       (lambda mb, loss: mb.log(correct=0), False, 0)):
            self.new_fake()
            model = make_mlp()
            for x, y in self.join(model, steps=1, micro_batches=1).loader():
                with self.run_.micro_batch() as mb:
                    loss = F.cross_entropy(model(x), y)
                    loss.backward()
                    log(mb, loss)
            (_, _, sums), = self.fake.losses
            self.assertEqual(sums[0] > 0, has_loss)
            self.assertEqual(sums[0] == missing, not has_loss)
            self.assertEqual(sums[1], correct)

    def test_sums_are_those_of_the_pinned_version_in_eval(self):
        models = []

        def evaluate(run, model):
            models.append(model)
            count_correct(run, model)
        result = self.train(lambda: make_mlp(0.5), evaluate=evaluate, evaluate_every_steps=1)
        self.assertEqual([version for version, _ in self.fake.evaluations], [1, 2, 3])
        data = Points(11)
        for version, sums in self.fake.evaluations:
            model = make_mlp()
            model.load_state_dict(dict(zip(self.fake.names, self.fake.versions[version])))
            self.assertEqual(sums["correct"], (model(data.x).argmax(1) == data.y).sum().item())
            self.assertAlmostEqual(sums["loss_sum"], F.cross_entropy(model(data.x), data.y, reduction="sum").item(),
                                   places=5)
        self.assertTrue(models[0][2].training)
        self.new_fake()
        self.assertEqual(self.train(lambda: make_mlp(0.5)).bits(), result.bits())

    def test_wrong_functions(self):
        for text, function in (("return a dict", lambda x, y: 3), ("is a word", lambda x, y: {"top 5": 1}),
                               ("at least one", lambda x, y: {})):
            model = make_mlp()
            run = self.join(model)
            run.evaluate_with(Points(), function)
            with self.assertRaisesRegex(pando.PandoError, text):
                next(run.loader())

    def test_abandoned_evaluations_are_dropped(self):
        def evaluate(run, model):
            def stop(x, y):
                if len(x) == 4:  # not the call that learns the names
                    self.fake.is_dropped = not self.fake.evaluations and self.fake.step == 1 and not flags
                    flags.append(1)
                return dict(n=len(x))
            flags = []
            run.evaluate_with(Points(8), stop, batch_size=4)
        self.train(evaluate=evaluate, evaluate_every_steps=1)
        self.assertEqual(self.fake.evaluations, [(1, {"n": 8.0}), (2, {"n": 8.0}), (3, {"n": 8.0})])


class ReportTest(FakeCase):
    def train_with(self, function, evaluates=True, may_stop=True, **options):
        """A run that calls function(run, model, results) after each step."""
        def evaluate(run, model):
            if evaluates:
                count_correct(run, model)
            run.on_evaluation(lambda results: function(run, model, results), may_stop)
        return self.train(lambda: make_mlp(0.5), evaluate=evaluate, evaluate_every_steps=1, **options)

    def test_the_function_has_the_version_and_its_means(self):
        def note(run, model, results):
            seen.append((results.version, results.epoch, dict(results), results.loss, results["correct"],
                         model.training, torch.is_grad_enabled()))
            for name, value in zip(self.fake.names, self.fake.versions[results.version]):
                self.assertTrue(torch.equal(model.state_dict()[name], value), name)
            with self.assertRaisesRegex(AttributeError, "has no accuracy: .*correct"):
                print(results.accuracy)
            run.save(f"{self.fake.folder}/own.safetensors")
            torch.rand(7), random.random()  # change no bit of the training
        seen = []
        bits = self.train_with(note).bits()
        for (version, sums), (step, epoch, means, loss, correct, *modes) in zip(self.fake.evaluations, seen):
            self.assertEqual((step, epoch, modes), (version, version / 3, [False, False]))
            self.assertEqual((means, means), ({"correct": correct, "loss": loss},
                                              {name.replace("_sum", ""): sums[name] / 11 for name in sums}))
        self.assertEqual(len(seen), 3)
        self.assertEqual(self.fake.job["eval"]["report"], "decides")
        self.new_fake()
        self.assertEqual(self.train(lambda: make_mlp(0.5)).bits(), bits)

    def test_a_run_without_a_test_set_reports_its_versions(self):
        seen = []
        self.train_with(lambda run, model, results: seen.append((results.version, dict(results))), evaluates=False,
                        may_stop=False)
        self.assertEqual(seen, [(1, {}), (2, {}), (3, {})])
        self.assertEqual(self.fake.job["eval"]["report"], "beside")

    def test_stop_ends_the_run_with_the_evaluated_version(self):
        result = self.train_with(lambda run, model, results: results.version == 2 and run.stop("good enough"))
        self.assertEqual(self.fake.stopped, "good enough")
        for name, value in zip(self.fake.names, self.fake.versions[2]):
            self.assertTrue(torch.equal(result.tensors[name], value), name)
        self.assertEqual(len(self.fake.versions), 3)

    def test_stop_is_refused_elsewhere(self):
        def stop(run, model, batch):
            with run.micro_batch():
                run.stop()
        self.assert_fails("stop.. was called outside", stop)
        self.new_fake()
        with self.assertRaisesRegex(pando.PandoError, "may_stop=False"):
            self.train_with(lambda run, model, results: run.stop(), may_stop=False)

    def test_errors_of_the_function_end_the_run(self):
        def write(model):
            model[0].weight.data.mul_(2.0)
        for text, function in (("division", lambda run, model, results: 1 // 0),
                               ("parameter 0.weight was changed", lambda run, model, results: write(model)),
                               ("parameter 0.bias was changed",
                                lambda run, model, results: model[0].bias.add_(1.0))):
            self.new_fake()
            with self.assertRaisesRegex(Exception, text):
                self.train_with(function)
            self.assertRegex(self.fake.failure, text)

    def test_one_function_is_given_before_the_loop(self):
        run = self.join(make_mlp())
        function = run.on_evaluation(print)
        self.assertIs(function, print)
        with self.assertRaisesRegex(pando.PandoError, "on_evaluation was called .* twice"):
            run.on_evaluation(print)

    def test_the_rank_is_that_of_the_process(self):
        run = self.join(make_mlp())
        for variables, rank in (({}, 0), ({"PANDO_SCHEDULER": "tcp://a:1", "PANDO_RANK": "3"}, 3),
                                ({"PANDO_SCHEDULER": "tcp://a:1", "PANDO_RANK": ""}, None),
                                ({"PANDO_SCHEDULER": "tcp://a:1", "PANDO_PRELOAD": "7", "PANDO_RANK": "0"}, None)):
            with mock.patch.dict(os.environ, variables):
                for name in ("PANDO_SCHEDULER", "PANDO_RANK", "PANDO_PRELOAD"):
                    if name not in variables:
                        os.environ.pop(name, None)
                if rank is None:
                    with self.assertRaisesRegex(pando.PandoError, "are known in the loop"):
                        print(run.is_main)
                else:
                    self.assertEqual((run.rank, run.is_main), (rank, rank == 0))
        self.new_fake()
        self.train()
        self.assertEqual((self.run_.rank, self.run_.is_main), (0, True))


class EndTest(FakeCase):
    def test_a_failed_run_raises_its_root_cause(self):
        self.fake.fail_at = 1
        with self.assertRaisesRegex(pando.RunFailed, "worker 1 ran out of memory"):
            self.train()

    def test_a_stopped_run_ends_the_script(self):
        self.fake.stop_at = 1
        with self.assertRaises(SystemExit) as raised:
            self.train()
        self.assertEqual(raised.exception.code, 130)
        self.assertIsInstance(raised.exception, pando.Stopped)
        with self.assertRaisesRegex(pando.PandoError, "does not hold the final weights"):
            self.run_.save("x")

    def test_the_first_signal_leaves(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number=number):
                self.new_fake()
                model = make_mlp()
                steps = []
                with self.assertRaises(pando.Stopped):
                    for x, y in self.join(model).loader():
                        with self.run_.micro_batch() as mb:
                            steps.append(mb.step)
                            os.kill(os.getpid(), number)
                            F.cross_entropy(model(x), y).backward()
                self.assertEqual(len(steps), 1)
                self.assertTrue(self.fake.has_left)
                self.assertEqual(signal.getsignal(signal.SIGTERM), signal.SIG_DFL)

    def test_ctrl_c_in_a_terminal_spares_the_reading_processes(self):
        pando.seed(1)
        model = make_mlp()
        steps = []
        with self.assertRaises(pando.Stopped):
            for x, y in self.join(model, steps=30).loader(num_workers=2):
                with self.run_.micro_batch() as mb:
                    if not steps:
                        for child in multiprocessing.active_children():
                            os.kill(child.pid, signal.SIGINT)
                    if mb.step == 20 and not self.fake.has_left:
                        os.kill(os.getpid(), signal.SIGINT)
                    steps.append(mb.step)
                    F.cross_entropy(model(x), y).backward()
        self.assertIsNone(self.fake.failure)
        self.assertEqual(max(steps), 20)

    def test_a_run_without_readable_weights_warns(self):
        with mock.patch("pando_train._run.read_safetensors", side_effect=FileNotFoundError(2, "No such file")):
            with self.assertWarnsRegex(UserWarning, "final.safetensors cannot be read"):
                self.train()

    def test_a_run_without_a_known_folder_warns(self):
        self.fake.folder_given = b""
        with mock.patch("pando_train._run.read_safetensors", side_effect=AssertionError):
            with self.assertWarnsRegex(UserWarning, "the run's folder is not known"):
                self.train()

    def test_an_empty_rank_is_any(self):
        for text, rank in (("", 2**32 - 1), ("3", 3)):
            self.new_fake()
            with mock.patch.dict(os.environ, PANDO_RANK=text):
                self.train()
            self.assertEqual(self.fake.wanted_rank, rank)

    def test_an_open_that_fails_is_closed(self):
        self.fake.error_at_open = "tensor 3 has no name"
        with self.assertRaisesRegex(pando.PandoError, "tensor 3 has no name"):
            self.train()
        self.assertTrue(self.fake.is_closed)

    def test_an_error_in_the_loop_outside_of_the_block_is_reported(self):
        model = make_mlp()
        with mock.patch("sys.excepthook") as default:
            try:
                for x, y in self.join(model).loader():
                    with self.run_.micro_batch():
                        F.cross_entropy(model(x), y).backward()
                    raise ValueError("the plot cannot be drawn")
            except ValueError:
                self.assertFalse(self.fake.is_closed)
                sys.excepthook(*sys.exc_info())  # as Python does at the script's end
            self.assertIs(sys.excepthook, default)
        default.assert_called_once()
        self.assertIn("the plot cannot be drawn", self.fake.failure)
        self.assertTrue(self.fake.is_closed)

    def test_break_leaves_as_a_crash_would(self):
        for is_early in (False, True):
            model = make_mlp()
            self.new_fake()
            with mock.patch("pando_train._process.threading.Timer") as timer:
                for x, y in self.join(model).loader():
                    with self.run_.micro_batch():
                        if is_early:
                            break
                        F.cross_entropy(model(x), y).backward()
                    break
            self.assertEqual(len(self.fake.losses), 0 if is_early else 1)
            self.assertEqual(signal.getsignal(signal.SIGTERM), signal.SIG_DFL)
            self.assertFalse(self.fake.is_closed)
            for _ in range(2):
                timer.call_args[0][1]()
            self.assertTrue(self.fake.is_closed)
            self.assertIsNone(self.fake.failure)

    def test_an_interruption_is_no_failure(self):
        model = make_mlp()
        with self.assertRaises(KeyboardInterrupt):
            for _ in self.join(model).loader():
                with self.run_.micro_batch():
                    raise KeyboardInterrupt
        self.assertIsNone(self.fake.failure)


class OneSampleTest(FakeCase):
    def test_the_smallest_run(self):
        self.train(lambda: nn.Linear(4, 3), data=Points(1), steps=1, global_batch=1, micro_batches=1)
        self.assertEqual(self.fake.step, 1)


if __name__ == "__main__":
    unittest.main()
