#!/usr/bin/env python3
"""tensorboard_test.py PANDO : TensorBoard's own reader finds the curves of metrics.csv in a run's event files.

Needs the package tensorboard: skipped (exit 77) unless this Python has it, or the one in PANDO_TENSORBOARD_PYTHON.
"""
import csv
import glob
import os
import subprocess
import sys
import tempfile

STEPS = 60
CURVES = {"train/loss": "loss", "train/accuracy": "accuracy", "train/lr": "lr"}
TOLERANCE = 1e-6  # TensorBoard's values are floats


def main(pando):
    python = os.environ.get("PANDO_TENSORBOARD_PYTHON")
    if python:
        environment = {k: v for k, v in os.environ.items() if k != "PANDO_TENSORBOARD_PYTHON"}
        return subprocess.call([python, *sys.argv], env=environment)
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
        from tensorboard.plugins.hparams import plugin_data_pb2
    except ImportError as error:
        print(f"SKIPPED: {error}; PANDO_TENSORBOARD_PYTHON names a Python with TensorBoard", file=sys.stderr)
        return 77
    with tempfile.TemporaryDirectory() as folder:
        run = os.path.join(folder, "run")
        # Two lives of the scheduler, each with its own file.
        subprocess.run([pando, "train", "--run-dir", run, "--model", "mlp", "--dataset", "synthetic-digits", "--steps",
                        str(STEPS), "--chaos", f"kill scheduler at step {STEPS // 2}"],
                       check=True, stdout=subprocess.DEVNULL)
        with open(os.path.join(run, "metrics.csv"), encoding="utf-8", newline="") as file:
            rows = {int(row["step"]): row for row in csv.DictReader(file) if row["loss"]}
        read = EventAccumulator(run)
        read.Reload()
        for tag, column in CURVES.items():
            points = read.Scalars(tag)
            assert points, f"no points of {tag}"
            assert points[-1].step == STEPS, f"{tag} ends at step {points[-1].step} of {STEPS}"
            for point in points:
                expected = float(rows[point.step][column])
                assert abs(point.value - expected) <= TOLERANCE * max(1.0, abs(expected)), (tag, point, expected)
        ends = []
        for path in sorted(glob.glob(os.path.join(run, "events.out.tfevents.*"))):
            for event in EventFileLoader(path).Load():
                for value in event.summary.value:
                    if value.metadata.plugin_data.plugin_name == "hparams":
                        data = plugin_data_pb2.HParamsPluginData.FromString(value.metadata.plugin_data.content)
                        ends.append(data.session_end_info.status)
        assert ends and ends[-1] == 1, f"the last session's status is {ends}: expected 1, STATUS_SUCCESS"
    print(f"{len(points)} points of {len(CURVES)} curves; the run's end is read")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
