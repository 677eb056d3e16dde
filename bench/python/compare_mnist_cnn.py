#!/usr/bin/env python3
"""compare_mnist_cnn.py [--rounds N] [--data FOLDER] [--pando PROGRAM]: Pando beside PyTorch, interleaved.

The MNIST CNN, global batch 128, two micro-batches. Every round runs each variant once, and every other round goes
backwards. Prints images/s of each variant (min, median, p99, max) and the ratios of the rounds. PyTorch's best variant
counts. Run it on an idle machine.
"""
import statistics
import subprocess

from report import MNIST, PANDO, ROOT, commit, cpu, heading, in_turns, make_parser, row, torch_environment, train

SERIAL, DISTRIBUTED = "Pando --serial --threads 2", "Pando 2 workers x 1 thread, 2 servers"
PANDO_VARIANTS = {SERIAL: ["--serial", "--threads", "2"], DISTRIBUTED: ["--workers", "2", "--servers", "2"]}
TORCH_VARIANTS = {f"PyTorch, {'channels_last' if last else 'default'}, OPENBLAS_NUM_THREADS={blas}": (last, blas)
                  for last in (False, True) for blas in (1, 2)}


def pytorch(data, channels_last, blas_threads):
    command = ["/usr/bin/python3", str(ROOT / "bench/python/pytorch_mnist_cnn.py"), data]
    command += ["--channels-last"] if channels_last else []
    done = subprocess.run(command, env=torch_environment(2, blas_threads), check=True, capture_output=True, text=True)
    return float(done.stdout)


def measure(args, name):
    if name in TORCH_VARIANTS:
        return pytorch(args.data, *TORCH_VARIANTS[name])
    return train(args.pando, ["--model", "mnist-cnn", "--dataset", "mnist", "--data", args.data, "--epochs", "2",
                              "--global-batch", "128", "--micro-batches", "2", "--optimizer", "adam", "--lr", "0.001",
                              "--set", "eval.every_epochs=0", *PANDO_VARIANTS[name]])["images_per_second"]


def main():
    args = make_parser(__doc__, rounds=5, data=MNIST, pando=PANDO).parse_args()
    figures = in_turns([*TORCH_VARIANTS, *PANDO_VARIANTS], args.rounds, lambda name: measure(args, name))
    print(f"commit {commit()}, {cpu()}, {args.rounds} rounds interleaved")
    heading("images/s")
    for name, values in figures.items():
        row(name, values)
    best = max(TORCH_VARIANTS, key=lambda name: statistics.median(figures[name]))
    row("ratio: serial / best PyTorch", [a / b for a, b in zip(figures[SERIAL], figures[best])])
    row("ratio: distributed / serial", [a / b for a, b in zip(figures[DISTRIBUTED], figures[SERIAL])])


if __name__ == "__main__":
    main()
