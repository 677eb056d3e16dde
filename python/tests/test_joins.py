"""Tests of a script with two joins, with the real library and processes: bits, kills, resumed runs, errors."""
import os
import signal
import sys
import unittest
from pathlib import Path
from unittest import mock

from support import FakeCase, _run, make_mlp, pando
from test_real import PROGRAM, RealCase, find_children, is_gone, wait_until

SCRIPT = str(Path(__file__).with_name("joins_script.py"))
STEPS = 8
KILLS = ("first", "between", "again", "second", "after")
LONG = 1500  # steps of a run that is stopped


class JoinsCase(RealCase):
    def start(self, command, name):
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return self.start_process(command, folder)

    def train(self, name, *arguments, flags=("--workers", "1", "--servers", "1"), expected=0):
        return self.finish(self.start([PROGRAM, "run", "--run-dir", "run", *flags, sys.executable, SCRIPT,
                                       *map(str, arguments)], name), expected)

    def saved(self, name, count):
        """The file of weights that each script has saved after its second loop."""
        texts = [path.read_bytes() for path in (self.folder / name).glob("saved-*")]
        self.assertEqual((len(texts), len(set(texts))), (count, 1))
        return texts[0]


class BitsTest(JoinsCase):
    def test_the_weights_depend_on_nothing_that_may_change(self):
        self.finish(self.start([sys.executable, SCRIPT, str(STEPS)], "python"), 0)
        expected = self.saved("python", 1)
        for name, workers, flags, kills in (("one", 1, ("--servers", "1"), ()), ("two", 2, ("--servers", "2"), ()),
                                            ("one-killed", 1, ("--servers", "1"), KILLS),
                                            ("two-killed", 2, ("--servers", "2"), KILLS),
                                            ("forked", 2, ("--servers", "1", "--preload"), ("second",))):
            with self.subTest(name):
                text = self.train(name, STEPS, *kills, flags=("--workers", str(workers), *flags))
                self.assertEqual(self.saved(name, workers), expected)
                self.assertEqual(len(list((self.folder / name).glob("killed-*"))), len(kills))
                self.assertIn("starting the script again from its top, for its run 2", text)
                self.assertEqual({path.name for path in (self.folder / name).glob("run*")}, {"run", "run-2"})


class EndTest(JoinsCase):
    def test_an_error_in_the_second_run_ends_the_command(self):
        text = self.train("fail", STEPS, "fail", expected=1)
        self.assertIn("ValueError: the second head is upside down", text)

    def test_a_folder_of_another_run_is_kept(self):
        (self.folder / "kept" / "run-2").mkdir(parents=True)
        (self.folder / "kept" / "run-2" / "notes").touch()
        self.train("kept", STEPS)
        self.assertTrue((self.folder / "kept" / "run-3" / "final.safetensors").exists())

    def test_each_run_is_stopped_and_resumed(self):
        self.train("whole", LONG)
        command = [PROGRAM, "run", "--run-dir", "run", "--workers", "1", "--servers", "1", sys.executable, SCRIPT,
                   str(LONG)]
        for run in ("run", "run-2"):
            process = self.start(command, "cut")
            metrics = self.folder / "cut" / run / "metrics.csv"
            wait_until(lambda: metrics.exists() and metrics.read_text().count("\n") > 8)
            children = find_children(process.pid)
            process.send_signal(signal.SIGINT)
            self.finish(process, 130)
            self.assertTrue(all(is_gone(child) for child in children))
            self.assertFalse((self.folder / "cut" / run / "final.safetensors").exists())
            command = [PROGRAM, "resume", run]
        self.finish(self.start(command, "cut"), 0)
        self.assertEqual(self.saved("cut", 1), self.saved("whole", 1))


class RefusalTest(FakeCase):
    def test_a_script_of_pando_node_has_one_run(self):
        self.join(make_mlp())
        with self.assertRaisesRegex(pando.PandoError, "pando.join is called a second time: a script that `pando node`"):
            pando.join(make_mlp(), self.run_._train_set, pando.SGD(lr=0.1), steps=5)

    def test_the_script_ends_where_its_next_run_begins(self):
        with mock.patch.dict(os.environ, PANDO_EARLIER_RUNS=""), mock.patch.multiple(_run, _loop_count=0):
            self.train()
            with self.assertRaises(pando.Stopped) as raised:
                next(self.join(make_mlp()).loader())
        self.assertEqual(raised.exception.code, _run.NEXT_RUN_STATUS)

    def test_loops_one_in_the_other(self):
        with mock.patch.dict(os.environ, PANDO_EARLIER_RUNS=""), mock.patch.multiple(_run, _is_in_run=True):
            with self.assertRaisesRegex(pando.PandoError, "before the script's previous loop had ended"):
                next(self.join(make_mlp()).loader())


if __name__ == "__main__":
    unittest.main()
