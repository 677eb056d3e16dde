#!/usr/bin/env python3
"""readers.py [--pando PROGRAM] [--data FOLDER] [--rounds 3] [--steps 12]

Measures reading threads in a job that waits for photographs: one computing thread, a small network, no cache. Prints
images/s and the share of time without samples for 1 and 2 reading threads in turn, and how long the first micro-batch
takes. The weights of 1, 2 and 4 are compared. FOLDER has JPEG files of photographs (../shared/data/imagenet-fullsize).
"""
import pathlib
import shutil
import statistics
import sys
import tempfile

from report import PANDO, ROOT, in_turns, make_parser, train

BATCH = 64


def make_pictures(source, folder):
    """Makes two classes of copies: 640 training pictures and 20 test pictures."""
    photographs = sorted(path for path in source.iterdir() if path.suffix.lower() in (".jpg", ".jpeg"))
    if not photographs:
        sys.exit(f"{source} has no .jpg or .jpeg files")
    for split, count in (("train", 320), ("val", 10)):
        for name in ("one", "two"):
            (folder / split / name).mkdir(parents=True)
            for i in range(count):
                shutil.copy(photographs[i % len(photographs)], folder / split / name / f"{i}.jpg")


def run(args, pictures, readers, steps):
    """Returns the run's summary."""
    return train(args.pando, [
        "--serial", "--model", "mlp", "--set", "model.hidden=8", "--set", "data.resize=64", "--dataset", "imagefolder",
        "--data", pictures, "--augment", "crop,flip", "--global-batch", BATCH, "--micro-batches", "1", "--threads", "1",
        "--reader-threads", readers, "--steps", steps, "--set", "eval.every_epochs=0", "--lr", "0.0001"])


def main():
    args = make_parser(__doc__, pando=PANDO, data=ROOT.parent / "shared/data/imagenet-fullsize", rounds=3,
                       steps=12).parse_args()
    with tempfile.TemporaryDirectory() as temp:
        pictures = pathlib.Path(temp)
        make_pictures(args.data, pictures)

        def measure(readers):
            summary = run(args, pictures, readers, args.steps)
            hashes.add(summary["weights_hash"])
            first = run(args, pictures, readers, 1)["data_stall_seconds"]
            return summary["images_per_second"], summary["data_stall_share"], first

        hashes = set()
        samples = in_turns((1, 2), args.rounds, measure)
        hashes.add(run(args, pictures, 4, args.steps)["weights_hash"])
    rates, stalls, firsts = ({readers: statistics.median(column) for readers, column in zip((1, 2), columns)}
                             for columns in zip(*(zip(*samples[readers]) for readers in (1, 2))))
    for readers in (1, 2):
        print(f"{readers} reading: {rates[readers]:7.1f} images/s, without samples "
              f"{100 * stalls[readers]:4.1f} % of the time, first micro-batch of {BATCH} after "
              f"{1000 * firsts[readers]:5.0f} ms")
    faster = rates[2] / rates[1]
    sooner = firsts[2] / firsts[1]
    print(f"2 / 1: images/s {faster:.2f} (aim 1.6), first micro-batch {sooner:.2f} (aim 0.65 at most)")
    print(f"weights of 1, 2 and 4 reading threads: {'the same' if len(hashes) == 1 else 'DIFFERENT'}")
    return 0 if len(hashes) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
