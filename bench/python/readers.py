#!/usr/bin/env python3
"""readers.py [--pando PROGRAM] [--data FOLDER] [--rounds 3] [--steps 12]

What reading threads bring to a job that photographs hold back: one computing thread, a small network, no cache.
Images/s and the share of time without samples for 1 and 2 reading threads in turn, and how long the first micro-batch
takes. The weights of 1, 2 and 4 are compared. FOLDER has JPEG files of photographs (../shared/data/imagenet-fullsize).
"""
import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BATCH = 64


def make_pictures(source, folder):
    """Two classes of copies: 640 training pictures and 20 test pictures."""
    photographs = sorted(path for path in source.iterdir() if path.suffix.lower() in (".jpg", ".jpeg"))
    if not photographs:
        sys.exit(f"{source} has no .jpg or .jpeg files")
    for split, count in (("train", 320), ("val", 10)):
        for name in ("one", "two"):
            (folder / split / name).mkdir(parents=True)
            for i in range(count):
                shutil.copy(photographs[i % len(photographs)], folder / split / name / f"{i}.jpg")


def train(args, pictures, readers, steps):
    """The run's summary."""
    with tempfile.TemporaryDirectory() as temp:
        done = subprocess.run(
            [args.pando, "train", "--serial", "--json", "--run-dir", f"{temp}/run", "--model", "mlp", "--set",
             "model.hidden=8", "--set", "data.resize=64", "--dataset", "imagefolder", "--data", str(pictures),
             "--augment", "crop,flip",
             "--global-batch", str(BATCH), "--micro-batches", "1", "--threads", "1", "--reader-threads", str(readers),
             "--steps", str(steps), "--set", "eval.every_epochs=0", "--lr", "0.0001"],
            capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(done.stderr[-2000:])
        return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pando", default=str(ROOT / "build/cli/pando"))
    parser.add_argument("--data", type=pathlib.Path, default=ROOT.parent / "shared/data/imagenet-fullsize")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    args = parser.parse_args()
    rates, stalls, firsts = {1: [], 2: []}, {1: [], 2: []}, {1: [], 2: []}
    hashes = set()
    with tempfile.TemporaryDirectory() as temp:
        pictures = pathlib.Path(temp)
        make_pictures(args.data, pictures)
        for _ in range(args.rounds):
            for readers in (1, 2):
                summary = train(args, pictures, readers, args.steps)
                rates[readers].append(summary["images_per_second"])
                stalls[readers].append(summary["data_stall_share"])
                hashes.add(summary["weights_hash"])
                firsts[readers].append(train(args, pictures, readers, 1)["data_stall_seconds"])
        hashes.add(train(args, pictures, 4, args.steps)["weights_hash"])
    for readers in (1, 2):
        print(f"{readers} reading: {statistics.median(rates[readers]):7.1f} images/s, without samples "
              f"{100 * statistics.median(stalls[readers]):4.1f} % of the time, first micro-batch of {BATCH} after "
              f"{1000 * statistics.median(firsts[readers]):5.0f} ms")
    faster = statistics.median(rates[2]) / statistics.median(rates[1])
    sooner = statistics.median(firsts[2]) / statistics.median(firsts[1])
    print(f"2 / 1: images/s {faster:.2f} (aim 1.6), first micro-batch {sooner:.2f} (aim 0.65 at most)")
    print(f"weights of 1, 2 and 4 reading threads: {'the same' if len(hashes) == 1 else 'DIFFERENT'}")
    return 0 if len(hashes) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
