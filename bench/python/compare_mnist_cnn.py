#!/usr/bin/env python3
"""compare_mnist_cnn.py [--rounds N] [--data FOLDER] [--pando PROGRAM]: Pando beside PyTorch, interleaved.

The MNIST CNN, global batch 128, two micro-batches. Every round runs each variant once, in turn, so that
a machine whose speed drifts is fair to all. Prints images/s of each variant (min, median, p99, max) and
the ratios of the rounds. PyTorch's best variant counts. Run it on an idle machine.
"""
import argparse
import statistics
import subprocess
import sys

from report import MNIST, PANDO, ROOT, commit, cpu, images_per_second, torch_environment


def pytorch(data, channels_last, blas_threads):
    command = ["/usr/bin/python3", str(ROOT / "bench/python/pytorch_mnist_cnn.py"), data]
    command += ["--channels-last"] if channels_last else []
    done = subprocess.run(command, env=torch_environment(2, blas_threads), check=True, capture_output=True, text=True)
    return float(done.stdout)


def pando(program, data, extra):
    return images_per_second(program, [
        "--model", "mnist-cnn", "--dataset", "mnist", "--data", data, "--epochs", "2", "--global-batch", "128",
        "--micro-batches", "2", "--optimizer", "adam", "--lr", "0.001", "--set", "eval.every_epochs=0", *extra])


def row(name, values):
    ordered = sorted(values)
    p99 = ordered[min(len(ordered) - 1, round(0.99 * (len(ordered) - 1)))]
    print(f"{name:<44}{ordered[0]:>10,.2f}{statistics.median(ordered):>10,.2f}{p99:>10,.2f}{ordered[-1]:>10,.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", default=MNIST)
    parser.add_argument("--pando", default=PANDO)
    args = parser.parse_args()
    torch_variants = {f"PyTorch, {'channels_last' if last else 'default'}, OPENBLAS_NUM_THREADS={blas}": (last, blas)
                      for last in (False, True) for blas in (1, 2)}
    serial, distributed = "Pando --serial --threads 2", "Pando 2 workers x 1 thread, 2 servers"
    figures = {name: [] for name in [*torch_variants, serial, distributed]}
    for done in range(args.rounds):
        for name, (channels_last, blas) in torch_variants.items():
            figures[name].append(pytorch(args.data, channels_last, blas))
        figures[serial].append(pando(args.pando, args.data, ["--serial", "--threads", "2"]))
        figures[distributed].append(pando(args.pando, args.data, ["--workers", "2", "--servers", "2"]))
        print(f"round {done + 1} of {args.rounds}", file=sys.stderr)
    print(f"commit {commit()}, {cpu()}, {args.rounds} rounds interleaved, images/s")
    print(f"{'':<44}{'min':>10}{'p50':>10}{'p99':>10}{'max':>10}")
    for name, values in figures.items():
        row(name, values)
    best = max(torch_variants, key=lambda name: statistics.median(figures[name]))
    row("ratio: serial / best PyTorch", [a / b for a, b in zip(figures[serial], figures[best])])
    row("ratio: distributed / serial", [a / b for a, b in zip(figures[distributed], figures[serial])])


if __name__ == "__main__":
    main()
