"""Measuring in turns, and what step, scaling and recovery make of command lines, metrics and samples."""

import datetime
import os
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from scripts_path import options
import recovery
import scaling
import step
from measure import Programs, Variant, measure_in_turns, running
from recovery import Commits
from results import EXIT_UNREACHED, BenchError, Point, ResultSet
from training import IMAGES, STEP, LineTail, StepRows, TrainPlan, Workload, find_workload

HEADING = (
    "step,epoch,loss,accuracy,lr,images_per_second,elapsed_seconds,data_stall_ms,gpu_memory_mb,gpu_percent,"
    "exposed_sync_ms"
)
ZOO = {"mnist-cnn": (28, 1), "resnet18-cifar": (32, 3), "resnet18": (224, 3)}
MNIST = Workload("mnist-cnn", "mnist", "d", 0, 128)
CIFAR = Workload("resnet18-cifar", "cifar10", "d", 0, 32)


def has_words(words, *part) -> bool:
    return any(tuple(words[i:i + len(part)]) == part for i in range(len(words)))


def names_of(asked) -> list:
    return [each.point.name for each in asked]


def samples(asked, metric, values) -> None:
    for each, of_rounds in zip(asked, values):
        for value in of_rounds:
            each.point.add(metric, "", value)


class TurnsTest(unittest.TestCase):
    def test_variants_are_measured_in_turns_and_every_other_round_goes_back(self):
        order, told = [], []

        def measure(point):
            order.append(point.name)
            point.add("m", "1", float(len(order)))

        points = measure_in_turns(
            [Variant(Point(name), measure) for name in "abc"], 3, lambda done, total, name: told.append((done, total))
        )
        self.assertEqual("".join(order), "abccbaabc")
        self.assertEqual(told, [(i, 9) for i in range(9)])
        self.assertEqual(points[1].of("m"), [2, 5, 8])

    def test_the_first_failure_ends_the_measuring_and_names_its_point(self):
        calls = []

        def fail(_):
            raise BenchError("no port", EXIT_UNREACHED)

        with self.assertRaises(BenchError) as raised:
            measure_in_turns([Variant(Point("good"), calls.append), Variant(Point("bad"), fail)], 2, lambda *_: None)
        self.assertEqual((str(raised.exception), raised.exception.exit_code), ("bad: no port", EXIT_UNREACHED))
        self.assertEqual(len(calls), 1)


class RunsTest(unittest.TestCase):
    def test_a_process_that_ends_before_it_reads_leaves_the_error_of_the_block(self):
        with self.assertRaisesRegex(BenchError, "its reason"):
            with running(["true"], stdin=subprocess.PIPE, text=True) as process:
                process.wait()
                process.stdin.write("never read\n")
                raise BenchError("its reason")
        self.assertTrue(process.stdin.closed)

    def test_a_line_that_is_not_whole_yet_is_taken_when_it_is(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "log"
            tail = LineTail(path)
            self.assertEqual(tail.take(), [])  # no file yet
            with open(path, "w", buffering=1) as file:
                file.write("one\ntw")
                file.flush()
                self.assertEqual(tail.take(), ["one"])
                self.assertEqual(tail.take(), [])
                file.write("o\n\nfour\n")
                file.flush()
                self.assertEqual(tail.take(), ["two", "", "four"])

    def test_a_pace_leaves_out_the_first_row_whose_step_began_before_it(self):
        rows = StepRows()
        rows.add(HEADING)
        # Steps 0 to 4, a second each but the first; the second and the third came in one batch.
        for number, at, sync in (
            (0, "5.0", "900"),
            (1, "6.0", "10"),
            (2, "8.0", "20"),
            (3, "8.0", "30"),
            (4, "9.0", "40"),
        ):
            rows.add(f"{number},0.1,2.3,0.1,0.01,100,{at},0.0,0.0,0.0,{sync}")
        self.assertEqual(rows.pace(0, 4), (1.0, 25.0))
        self.assertEqual(rows.pace(1, 2)[0], 0.5)

    def test_rows_are_read_by_the_names_of_their_columns_and_errors_repeat_other_lines(self):
        rows = StepRows()
        rows.add("exposed_sync_ms,step,elapsed_seconds")
        rows.add("1.5,7,2.25")
        self.assertEqual((rows.rows[0].step, rows.rows[0].elapsed_s, rows.rows[0].exposed_sync_ms), (7, 2.25, 1.5))
        for bad in ("", "1.5,7", "1.5,x,2.25", "1.5,7,2.25s", "1.5,-7,2"):
            with self.assertRaises(BenchError) as raised:
                rows.add(bad)
            self.assertIn(f"'{bad}'", str(raised.exception))
        of_another_release = StepRows()
        of_another_release.add("step,elapsed_seconds")
        self.assertRaises(BenchError, of_another_release.add, "1,2")

    def test_the_program_is_looked_for_where_it_was_named_or_an_error_says_where(self):
        programs = Programs(Path("/nowhere/else/pando"))
        self.assertEqual(programs.measured("/bin/sh"), "/bin/sh")
        for bad in ("/nowhere/pando", "/tmp", "/etc/passwd"):
            self.assertRaisesRegex(BenchError, f"{bad}\n.*--program", programs.measured, bad)
        self.assertRaisesRegex(BenchError, "/nowhere/else/pando-bench\n(.|\n)*ninja", programs.bench)


class WorkloadsTest(unittest.TestCase):
    def test_where_no_folder_has_a_models_data_pictures_of_its_size_are_drawn(self):
        with tempfile.TemporaryDirectory() as folder:
            digits = find_workload("mnist-cnn", ZOO, 0, [folder])
            self.assertEqual(digits, Workload("mnist-cnn", "synthetic-digits", "", 0, 128))
            self.assertEqual(digits.flags(), ["--model", "mnist-cnn", "--dataset", "synthetic-digits"])
            small = find_workload("resnet18-cifar", ZOO, 16, [folder])
            self.assertEqual(small.worker_batch, 16)
            self.assertTrue(has_words(small.flags(), "--dataset", "synthetic-imagenet", "--resize", "32"))
            self.assertEqual(small.data_text(), "synthetic-imagenet (drawn)")

    def test_real_data_are_found_under_the_names_that_people_give_their_folders(self):
        with tempfile.TemporaryDirectory() as folder:
            cifar = Path(folder) / "cifar-10-batches-bin"
            mnist = Path(folder) / "mnist"
            for name in [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]:
                cifar.mkdir(exist_ok=True)
                (cifar / name).write_text("x")
            for name in (
                "train-images-idx3-ubyte.gz",
                "train-labels.idx1-ubyte",
                "t10k-images-idx3-ubyte",
                "t10k-labels-idx1-ubyte",
            ):
                mnist.mkdir(exist_ok=True)
                (mnist / name).write_text("x")
            workload = find_workload("resnet18-cifar", ZOO, 0, ["/nowhere", folder])
            self.assertEqual(workload.worker_batch, 32)
            self.assertEqual(
                workload.flags(), ["--model", "resnet18-cifar", "--dataset", "cifar10", "--data", str(cifar)]
            )
            self.assertEqual(find_workload("mnist-cnn", ZOO, 0, [folder]).data_path, str(mnist))
            self.assertEqual(find_workload("resnet18", ZOO, 0, [folder]).data_path, "")

    def test_a_model_that_the_zoo_does_not_have_is_an_error_that_repeats_it(self):
        self.assertRaisesRegex(BenchError, "'resnet19'", find_workload, "resnet19", ZOO, 0, [])

    def test_command_lines_have_servers_only_with_the_strategy_ps_and_a_micro_batch_for_each_worker(self):
        ps = TrainPlan(MNIST, "ps", 3, 2, 2, "ipc", 384)
        words = ps.words(Path("/run"))
        for part in (
            ("--global-batch", "384", "--micro-batches", "3"),
            ("--workers", "3"),
            ("--transport", "ipc"),
            ("--servers", "2", "--replicas", "2"),
            ("--run-dir", "/run"),
        ):
            self.assertTrue(has_words(words, *part), part)
        self.assertNotIn("-v", words)
        self.assertEqual(ps.process_count(), 5)
        group = TrainPlan(MNIST, "allreduce", 3, 2, 2, "ipc", 384)
        self.assertTrue({"--servers", "--transport"}.isdisjoint(group.words(Path("/run"))))
        self.assertEqual(group.process_count(), 3)
        single = TrainPlan(MNIST, "single", global_batch=128, is_verbose=True).words(Path("/run"))
        self.assertNotIn("--workers", single)
        self.assertTrue(has_words(single, "--micro-batches", "1"))
        self.assertIn("-v", single)


class StepTest(unittest.TestCase):
    def test_a_baseline_has_as_many_processes_as_the_point_has_workers_each_with_a_workers_batch(self):
        points = step.step_points(options(step), [MNIST, CIFAR], 2)
        # Local; serial; ps over 2 transports with 1 and 2 replicas; allreduce.
        self.assertEqual(len(points), 2 * (1 + 1 + 4 + 1))
        self.assertEqual(len(set(names_of(points))), len(points))
        baseline = ""
        for each in points:
            self.assertEqual(sum(plan.workers for plan in each.plans), 2)
            self.assertEqual(sum(plan.global_batch for plan in each.plans), 2 * each.plans[0].workload.worker_batch)
            self.assertTrue(all(plan.servers >= plan.replicas for plan in each.plans))
            if not each.baseline and step.SERIAL not in each.point.name:
                baseline = each.point.name
                self.assertEqual([plan.strategy for plan in each.plans], ["single", "single"])
                self.assertNotEqual(each.plans[0].seed, each.plans[1].seed)
            self.assertIn(each.baseline, ("", baseline))
            self.assertEqual(each.point.is_oversubscribed, each.plans[0].strategy == "ps")

    def test_the_loss_of_a_step_is_taken_against_the_same_rounds_baseline(self):
        args = options(step, transport=["tcp"], replicas=[1])
        asked = step.step_points(args, [MNIST], 8)
        self.assertEqual(len(asked), 4)
        samples(asked, IMAGES, [[100, 200], [60, 110], [90, 190], [80, 210]])
        samples(asked, STEP, [[2560, 1280], [4000, 2000], [2800, 1350], [3200, 1200]])
        step.add_exposed(asked)
        for each in asked[:2]:
            self.assertEqual(each.point.of(step.EXPOSED), [])
        for each, expected in ((asked[2], [10.0, 5.0]), (asked[3], [20.0, -5.0])):  # noise is shown
            for value, wanted in zip(each.point.of(step.EXPOSED), expected):
                self.assertAlmostEqual(value, wanted)
        results = ResultSet("step", "t", {}, [each.point for each in asked])
        step.add_summaries([MNIST], asked, results)
        rows = results.tables[0].rows
        self.assertEqual([len(row) for row in rows], [len(results.tables[0].header)] * 4)
        self.assertEqual((rows[0][2], rows[0][5]), ("local update", "-"))
        self.assertEqual((rows[1][1], rows[1][2], rows[1][5]), ("1", "--serial", "-"))
        self.assertTrue(has_words(asked[1].plans[0].words(Path("r")), "--global-batch", "256"))
        self.assertEqual((rows[2][2], rows[2][5], rows[2][8]), ("ps tcp, 1 server, 1 replica", "7.5", "8"))
        self.assertEqual(rows[3][8], "-")  # no aim
        self.assertEqual([row[4] for row in rows], ["1,920", "3,000", "2,075", "2,200"])  # ms of a step
        self.assertEqual([(len(plot.series), plot.x_axis) for plot in results.plots], [(2, "count")])


class ScalingTest(unittest.TestCase):
    def test_weak_has_a_batch_for_each_worker_and_strong_one_that_they_share(self):
        points = scaling.scaling_points(options(scaling), [MNIST], 2)
        self.assertEqual(len(points), 2 * 2 * 3)  # modes, strategies, workers
        self.assertEqual(len(set(names_of(points))), len(points))
        for each in points:
            workers = each.plan.workers
            self.assertEqual(each.plan.global_batch, 128 * workers if each.mode == "weak" else 128)
            self.assertEqual(each.first == each.point.name, workers == 1)
            self.assertEqual(each.point.is_oversubscribed, workers + (each.plan.strategy == "ps") > 2)

    def test_efficiency_is_of_a_worker_against_the_fewest_workers_of_the_same_curve_and_round(self):
        asked = scaling.scaling_points(options(scaling, scaling=["weak"], workers=[2, 4]), [MNIST], 8)
        samples(asked, IMAGES, [[100, 200], [160, 400], [1000, 1000], [1000, 3000]])
        scaling.add_efficiency(asked)
        self.assertEqual(
            [each.point.of(scaling.EFFICIENCY) for each in asked], [[1.0, 1.0], [0.8, 1.0], [1.0, 1.0], [0.5, 1.5]]
        )
        results = ResultSet("scaling", "t", {}, [each.point for each in asked])
        scaling.add_summaries(asked, results)
        rows = results.tables[0].rows
        self.assertEqual([len(row) for row in rows], [len(results.tables[0].header)] * 4)
        self.assertEqual(rows[1][6], "0.90")
        self.assertEqual([len(plot.series) for plot in results.plots], [2])
        self.assertEqual(results.plots[0].series[0][1], [(2, 1.0), (4, 0.9)])


def commits_of(*version_and_micros) -> Commits:
    commits = Commits()
    for version, micros in version_and_micros:
        commits.add(f"00:00:00.000 debug [worker 0] version {version} committed, at {micros} us")
    return commits


def event(time_of_day: str, kind: str, details: str) -> str:
    return f'{{"time":"2026-01-01T{time_of_day}Z","event":"{kind}","details":{details}}}'


class RecoveryTest(unittest.TestCase):
    def setUp(self):
        self.args = options(recovery, warm_up=1, at_step=3, steps_after=2)

    def test_commits_are_read_from_a_log_and_other_lines_and_versions_made_again_do_not_count(self):
        commits = commits_of((1, 1000), (2, 2000), (4, 4000), (3, 9000), (5, 10000))
        for line in ("00:00:00.000 info [worker 0] 22 shards", "version x committed, at 3 us", ""):
            commits.add(line)
        self.assertEqual(len(commits.all), 4)
        self.assertEqual(commits.newest(), 5)
        self.assertAlmostEqual(commits.reached(2), 0.002)
        self.assertAlmostEqual(commits.reached(3), 0.004)  # learned with the next one
        self.assertIsNone(commits.reached(6))
        self.assertEqual(Commits().newest(), 0)

    def test_the_longest_wait_begins_with_the_fault_or_with_a_commit_after_it(self):
        commits = commits_of((1, 1000), (2, 2000), (3, 2500), (4, 5000), (5, 5100))
        self.assertAlmostEqual(commits.longest_wait(0.0021), 0.0025)  # 2500 to 5000
        self.assertAlmostEqual(commits.longest_wait(0.003), 0.002)  # the fault to 5000
        self.assertAlmostEqual(commits.longest_wait(0.005), 0.0001)
        self.assertIsNone(commits.longest_wait(0.0051))

    def test_figures_of_one_run_are_the_delay_against_its_own_pace_the_wait_and_the_time_to_the_goal(self):
        # 1 ms a step until the fault at 3.2 ms; then 2 steps in 7 ms.
        commits = commits_of((1, 1000), (2, 2000), (3, 3000), (4, 9000), (5, 10000))
        point, calm = Point("hurt"), Point("calm")
        recovery.add_figures(self.args, commits, 0.0032, point)
        self.assertAlmostEqual(point.median(recovery.TO_GOAL), 0.009)
        self.assertAlmostEqual(point.median(recovery.NEXT_COMMIT), 5.8)
        self.assertAlmostEqual(point.median(recovery.LOST_OF_OWN_PACE), 0.005)
        recovery.add_figures(self.args, commits, None, calm)
        self.assertEqual(len(calm.samples), 1)
        self.assertRaises(BenchError, recovery.add_figures, self.args, commits_of((1, 1000), (3, 3000)), None, point)

    def test_every_process_of_a_run_has_its_faults_servers_only_with_servers_and_names_are_unique(self):
        points = recovery.recovery_points(self.args, MNIST, 2)
        self.assertEqual(len(points), (1 + len(recovery.FAULTS)) + len(recovery.FAULTS))
        names = names_of(points)
        self.assertEqual(len(set(names)), len(names))
        for each in points:
            self.assertEqual(each.fault is None, each.undisturbed == "")
            self.assertTrue(each.plan.is_verbose)
        for name in (
            "ps, server killed",
            "allreduce, worker killed",
            "allreduce, scheduler killed",
            "allreduce, worker stopped",
            "allreduce, scheduler stopped",
        ):
            self.assertIn(name, names)
        self.assertNotIn("allreduce, server killed", names)
        self.assertEqual(points[-1].undisturbed, "allreduce, undisturbed")

    def test_the_loss_of_a_fault_is_taken_against_the_same_rounds_undisturbed_run(self):
        self.args.strategy, self.args.fault = ["ps"], ["server"]
        asked = recovery.recovery_points(self.args, MNIST, 8)
        samples(asked, recovery.TO_GOAL, [[4.0, 5.0], [4.5, 5.25]])
        recovery.add_lost(asked)
        self.assertEqual([each.point.of(recovery.LOST) for each in asked], [[], [0.5, 0.25]])
        results = ResultSet("recovery", "t", {}, [each.point for each in asked])
        recovery.add_summaries(self.args, asked, results)
        self.assertEqual([len(row) for row in results.tables[0].rows], [len(results.tables[0].header)])
        row = results.tables[0].rows[0]
        self.assertEqual((row[0], row[3], row[7]), ("ps, server killed", "0.375", "-"))  # no report of the fault
        self.assertEqual([plot.name for plot in results.plots], ["recovery-next-commit", "recovery-lost"])
        self.assertEqual(results.plots[1].series, [("ps, server killed", [(0, 0.5), (1, 0.25)])])

    def test_a_runs_report_of_a_fault_is_the_first_line_after_it_that_knows_it(self):
        lines = [
            event("00:00:01.000", "fault", '{"detected_ms":1,"recovered_ms":2}'),
            event("00:00:05.010", "fault", '{"detected_ms":null,"recovered_ms":null}'),
            event("00:00:05.020", "fault", '{"detected_ms":5020.5,"recovered_ms":null}'),
            event("00:00:05.030", "view", '{"detected_ms":5020.5,"recovered_ms":1}'),
            "not a line of a run",
            event("00:00:05.045", "fault", '{"detected_ms":5020.5,"recovered_ms":5045}'),
        ]
        injected_at = datetime.datetime(2026, 1, 1, 0, 0, 5, tzinfo=datetime.timezone.utc).timestamp()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "events.jsonl"
            path.write_text("\n".join(lines) + "\n")
            said = recovery.read_fault(path, injected_at)
            self.assertAlmostEqual(said[recovery.NOTICED], 20.0, 3)
            self.assertAlmostEqual(said[recovery.RECOVERED], 45.0, 3)
            self.assertEqual(recovery.read_fault(Path(folder) / "none", injected_at), {})

    def test_a_child_is_found_by_its_role_and_rank(self):
        with tempfile.TemporaryDirectory() as folder:
            children = []
            # A shell that runs the file named by the role, which waits for a line that never comes. Written before any
            # shell starts: one that opens it while it is written again would read an empty file, and end.
            for role in ("worker", "server"):
                (Path(folder) / role).write_text("read line\n")
            for role, rank in (("worker", "0"), ("worker", "1"), ("server", "1")):
                children.append(
                    subprocess.Popen(
                        ["pando", role, "--rank", rank], executable="/bin/sh", cwd=folder, stdin=subprocess.PIPE
                    )
                )

            def found(role, rank):
                deadline = time.monotonic() + 120  # until the children have executed their program
                pid = None
                while pid is None and time.monotonic() < deadline:
                    pid = recovery.find_child(os.getpid(), role, rank)
                return pid

            try:
                self.assertEqual(
                    [found("worker", 0), found("worker", 1), found("server", 1)], [c.pid for c in children]
                )
                self.assertIsNone(recovery.find_child(os.getpid(), "server", 0))
                self.assertIsNone(recovery.find_child(os.getpid(), "scheduler", 0))
            finally:
                for child in children:
                    child.kill()
                    child.communicate()


if __name__ == "__main__":
    unittest.main()
