#!/usr/bin/env python3
"""accuracy.py [--gpu] [--only NAME ...] [--data FOLDER] [--pando PROGRAM]

Trains the papers' models on real data and compares the test accuracy with the bar of each. Two workers and one server
per run; with --gpu the runs for a GPU, one worker on it; --data is the folder that holds mnist, fashion-mnist,
cifar-10-batches-bin, sdss and imagefolder-mini. Prints
the accuracy, the training images/s and the share of the computing threads' time that waited for samples.
"""
import pathlib
import sys
import tempfile

from report import PANDO, commit, cpu, make_parser, train

SHARED = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"
ADAM = ["--optimizer", "adam", "--schedule", "one-cycle"]
SGD = ["--optimizer", "sgd", "--momentum", "0.9", "--weight-decay", "0.0005", "--schedule", "one-cycle"]
RUNS = {  # name: (bar, or None; data's folder; flags)
    "mnist-cnn": (0.988, "mnist", ["--model", "mnist-cnn", "--dataset", "mnist", "--epochs", "10", *ADAM,
                                   "--lr", "0.005"]),
    "fashion-lenet5": (0.89, "fashion-mnist", ["--model", "lenet5", "--dataset", "fashion-mnist", "--epochs", "10",
                                               *ADAM, "--lr", "0.005"]),
    "sdss-mlp": (0.97, "sdss/Skyserver_SQL2_27_2018 6_51_39 PM.csv", [
        "--model", "mlp", "--set", "model.hidden=[64, 64]", "--dataset", "sdss", "--epochs", "30", "--global-batch",
        "64", *ADAM, "--lr", "0.01"]),
    "cifar-cnn": (0.62, "cifar-10-batches-bin", ["--model", "cifar-cnn", "--dataset", "cifar10", "--epochs", "10",
                                                 "--global-batch", "64", *ADAM, "--lr", "0.004"]),
    "imagefolder": (0.95, None, ["--model", "mobilenet-v2", "--dataset", "imagefolder", "--resize", "64", "--epochs",
                                 "40", "--global-batch", "64", "--micro-batches", "2", *ADAM, "--lr", "0.003",
                                 "--eval-every-epochs", "40"]),
    "fashion-mobilenet": (None, "fashion-mnist", ["--model", "mobilenet-v2", "--dataset", "fashion-mnist", "--resize",
                                                  "32", "--epochs", "1", "--micro-batches", "2", *ADAM, "--lr",
                                                  "0.005", "--eval-every-epochs", "0"]),
    "mnist-resnet50": (None, "mnist", ["--model", "resnet50-cifar", "--dataset", "mnist", "--resize", "32", "--limit",
                                       "9600", "--set", "data.test_limit=2000", "--epochs", "1", "--global-batch",
                                       "32", "--micro-batches", "2", *ADAM, "--lr", "0.002"]),
    "cifar-resnet18": (0.60, "cifar-10-batches-bin", ["--model", "resnet18-cifar", "--dataset", "cifar10", "--epochs",
                                                      "2", "--global-batch", "128", "--micro-batches", "2", *SGD,
                                                      "--lr", "0.1", "--eval-every-epochs", "0"]),
}
GPU = ["--device", "cuda", "--precision", "bf16", "--micro-batches", "1", "--set", "run.reader_threads=8"]
GPU_RUNS = {"cifar-resnet18": (0.94, "cifar-10-batches-bin", ["--model", "resnet18-cifar", "--dataset", "cifar10",
                                                              "--augment", "crop,flip", "--epochs", "30",
                                                              "--global-batch", "128", *SGD, "--lr", "0.1",
                                                              "--eval-every-epochs", "5", *GPU]),
            "fashion-mobilenet": (0.90, "fashion-mnist", ["--model", "mobilenet-v2-small", "--dataset", "fashion-mnist",
                                                          "--resize", "32", "--epochs", "5", "--global-batch", "128",
                                                          *ADAM, "--lr", "0.005", *GPU]),
            "mnist-resnet50": (0.992, "mnist", ["--model", "resnet50-cifar", "--dataset", "mnist", "--resize", "32",
                                                "--epochs", "3", "--global-batch", "128", *ADAM, "--lr", "0.002",
                                                *GPU])}


def training_pictures_twice(folder, data):
    """Makes an image folder whose validation pictures are its training pictures."""
    for split in ("train", "val"):
        pathlib.Path(folder, split).symlink_to(data / "imagefolder-mini" / "train")
    return folder


def run(name, args):
    bar, folder, words = (GPU_RUNS if args.gpu else RUNS)[name]
    with tempfile.TemporaryDirectory() as temp:
        path = args.data / folder if folder else training_pictures_twice(temp, args.data)
        s = train(args.pando, ["--data", path, "--workers", "1" if args.gpu else "2", "--servers", "1", *words])
    met = "" if bar is None else "met" if s["test_accuracy"] >= bar else "MISSED"
    print(f"{name:18} {s['test_accuracy']:.4f}  {bar or '':<6} {met:7} {s['images_per_second']:9.1f} "
          f"{100 * s['data_stall_share']:6.2f} %  {s['wall_seconds']:7.0f} s  {s['weights_hash'][:8]}", flush=True)
    return met != "MISSED"


def main():
    parser = make_parser(__doc__, gpu=False, data=SHARED, pando=PANDO)
    parser.add_argument("--only", nargs="*", choices=sorted({*RUNS, *GPU_RUNS}))
    args = parser.parse_args()
    names = list(GPU_RUNS if args.gpu else RUNS)
    wanted = [name for name in names if args.only is None or name in args.only]
    if len(wanted) < len(args.only or []):
        parser.error(f"--only: {'with' if args.gpu else 'without'} --gpu the runs are {', '.join(names)}")
    print(f"commit {commit()}, {cpu()}, {1 if args.gpu else 2} workers, 1 server")
    print(f"{'run':18} {'test':6}  {'bar':6} {'':7} {'images/s':>9} {'stall':>8}  {'wall':>9}  hash")
    results = [run(name, args) for name in wanted]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
