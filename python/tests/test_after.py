"""Tests of a script around its loop, with the real library and processes: waits, errors, kills, other workers."""
import json
import os
import signal
import subprocess
import sys
import tomllib
import unittest
from pathlib import Path

from support import torch
from test_real import PROGRAM, RealCase, wait_until
from test_real import SCRIPT as TRAIN_SCRIPT

from pando_train._weights import read_safetensors

SCRIPT = str(Path(__file__).with_name("after_script.py"))


class AfterCase(RealCase):
    def start(self, what, *flags, command=(sys.executable, SCRIPT)):
        """`pando run` of the script, as a process."""
        arguments = [PROGRAM, "run", "--run-dir", str(self.folder / "run"), "--servers", "1", *flags, *command, what]
        return self.start_process(arguments, self.folder)

    def wait_for_scripts(self, process, count):
        """Until the scripts are behind their loop and `pando run` says that it waits for them."""
        self.assertTrue(any("waiting for the scripts of worker-0" in line for line in process.stdout))
        wait_until(lambda: len(list(self.folder.glob("waiting-*"))) == count)

    def check_saved(self, count):
        """Each script has saved the run's final weights."""
        final, _ = read_safetensors(str(self.folder / "run" / "final.safetensors"))
        saved = [read_safetensors(str(path))[0] for path in self.folder.glob("saved-*")]
        self.assertEqual(len(saved), count)
        for values in saved:
            self.assertTrue(all(torch.equal(values[name], final[name]) for name in final))

    def summary(self):
        return json.loads((self.folder / "run" / "summary.json").read_text())


class WaitTest(AfterCase):
    def test_scripts_that_go_on_after_the_loop_are_waited_for(self):
        process = self.start("wait", "--workers", "2")
        self.wait_for_scripts(process, 2)
        (self.folder / "go").touch()
        self.finish(process, 0)
        self.check_saved(2)

    def test_a_script_that_is_killed_after_its_loop_is_started_again_for_what_follows(self):
        process = self.start("wait", "--workers", "1")
        self.wait_for_scripts(process, 1)
        pid = int((self.folder / "waiting-0").read_text())
        (self.folder / "waiting-0").unlink()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: (self.folder / "waiting-0").exists())
        (self.folder / "go").touch()
        self.finish(process, 0)
        self.check_saved(1)
        self.assertEqual(self.summary()["faults"], [])  # the run did not notice

    def test_ctrl_c_ends_the_scripts_of_a_completed_run(self):
        process = self.start("wait", "--workers", "1")
        self.wait_for_scripts(process, 1)
        process.send_signal(signal.SIGINT)
        self.assertIn("the run is completed, and its weights are in", self.finish(process, 130))
        self.assertEqual(self.summary()["status"], "completed")

    def test_pando_stop_ends_the_scripts_of_a_completed_run(self):
        process = self.start("wait", "--workers", "1")
        self.wait_for_scripts(process, 1)
        stop = subprocess.run([PROGRAM, "stop", str(self.folder / "run")], capture_output=True, text=True, timeout=60,
                              check=False)
        self.assertEqual((stop.returncode, self.finish(process, 130) == ""), (0, False), stop.stderr)
        self.assertIn("ending the scripts that go on after their loop", stop.stderr)


class EndTest(AfterCase):
    def test_the_exit_code_of_a_script_is_that_of_the_command(self):
        text = self.finish(self.start("exit", "--workers", "2"), 7)
        self.assertIn("after its loop the script of worker", text)
        self.assertIn("exit code 7", text)
        self.assertEqual(self.summary()["status"], "completed")

    def test_an_error_after_the_loop_is_shown(self):
        text = self.finish(self.start("raise", "--workers", "1"), 1)
        self.assertIn("ValueError: the plot has no axes", text)
        self.assertEqual(self.summary()["status"], "completed")

    def test_an_exit_in_the_loop_is_reported_with_its_code(self):
        text = self.finish(self.start("exit-in-loop", "--workers", "1"), 1)
        self.assertIn("exit    : exit code 3", text)
        self.assertEqual(self.summary()["failure"], "worker 0: exit code 3")

    def test_the_command_of_a_run_can_be_resumed_in_any_folder(self):
        for name in ("train.py", "data.csv", "bin/python"):
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            path.touch()
        (self.folder / "bin" / "python").unlink()
        (self.folder / "bin" / "python").symlink_to("/bin/true")
        command = ("--", "bin/python", "-u", "train.py", "data.csv", "--labels=data.csv", "--lr=0.1")
        self.finish(self.start("none/such", "--workers", "1", command=command), 1)
        here = str(self.folder)
        self.assertEqual(tomllib.loads((self.folder / "run" / "job.toml").read_text())["run"]["command"],
                         [f"{here}/bin/python", "-u", f"{here}/train.py", f"{here}/data.csv",
                          f"--labels={here}/data.csv", "--lr=0.1", "none/such"])


class ByHandTest(AfterCase):
    def test_a_dead_scheduler_is_started_again_with_its_first_job_file(self):
        (self.folder / "job.toml").write_text('[model]\nname = "external"\n[data]\nname = "external"\n'
                                              "[run]\nworkers = 1\nservers = 1\n")

        def start(*arguments):
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            process = subprocess.Popen([PROGRAM, *arguments], cwd=self.folder, env=environment)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            return process
        scheduler = ("scheduler", "job.toml", "--run-dir", "run", "--endpoint-file", "endpoint", "--bind")
        first = start(*scheduler, "tcp://127.0.0.1:0")
        file = self.folder / "endpoint"
        wait_until(lambda: file.exists() and file.read_text().endswith("\n"))
        endpoint = file.read_text().strip()
        script = (sys.executable, TRAIN_SCRIPT, "mlp", "400", "0")
        node = start("node", "--join", endpoint, "--workers", "1", "--", *script)
        metrics = self.folder / "run" / "metrics.csv"
        wait_until(lambda: metrics.exists() and metrics.read_text().count("\n") > 8)
        first.kill()
        first.wait()
        self.assertEqual(start(*scheduler, endpoint).wait(120), 0)
        self.assertEqual(node.wait(120), 0)
        self.assertEqual(self.summary()["steps"], 400)


class KindTest(AfterCase):
    def test_workers_of_other_cpu_capability_are_reported(self):
        wrapper = self.folder / "worker.sh"
        wrapper.write_text('[ "$PANDO_RANK" = 1 ] && export ATEN_CPU_CAPABILITY=default\nexec "$@"\n')
        process = self.start("", "--workers", "2", command=("/bin/sh", str(wrapper), sys.executable, SCRIPT))
        text = self.finish(process, 0)
        if "avx" not in text + (self.folder / "run" / "events.jsonl").read_text():
            self.skipTest("this CPU has no capability but torch's default")
        self.assertIn('"mixed-kinds"', (self.folder / "run" / "events.jsonl").read_text())
        self.assertFalse(self.summary()["reproducible"])
        self.assertIn("ATEN_CPU_CAPABILITY", text)

    def test_workers_of_one_kind_are_reproducible(self):
        self.finish(self.start("", "--workers", "2"), 0)
        self.assertTrue(self.summary()["reproducible"])

    def test_a_worker_with_other_frozen_values_is_refused_by_name(self):
        text = self.finish(self.start("frozen", "--workers", "2"), 1)
        self.assertIn("the frozen parameter or buffer 0.weight has other values here than in the run", text)


if __name__ == "__main__":
    unittest.main()
