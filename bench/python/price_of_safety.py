#!/usr/bin/env python3
"""price_of_safety.py [safety|keys|travel] [--rounds N] [--steps N] [--mlp-steps N] [--data FOLDER] [--pando PROGRAM]

Measures the cost of safety in images/s, for the MNIST CNN and for an MLP of 25 million parameters:
  safety  replicas 2 beside 1, snapshots every 50 steps beside none
  keys    over TCP run.encrypt = "control" and "all" beside "none", and with shared memory, as in runs on one
          machine, "all" beside "none" (docs/security.md)
  travel  snapshots every 50 steps that travel to the scheduler (snapshot.store = "scheduler", P45) beside servers that
          write into a shared folder (with Adam's state a snapshot of the MLP has 300 MB)
Two workers, two servers. Every round runs each variant once, and every other round goes backwards. Prints min, p50,
p99, max, and the ratios of the rounds. Run it on an idle machine.
"""
from report import MNIST, PANDO, commit, cpu, heading, in_turns, make_parser, row, train

# 784 x 5120 + 5120 x 4096 + 4096 x 10 weights and their biases: 25,035,786.
MODELS = {"CNN": ["--model", "mnist-cnn", "--global-batch", "128"],
          "MLP": ["--model", "mlp", "--set", "model.hidden=[5120, 4096]", "--global-batch", "256"]}
VARIANTS = {"safety": {name: ["--replicas", name[0], "--snapshot-every", "50" if name.endswith("snapshots") else "0"]
                       for name in ("1 replica", "2 replicas", "1 replica, snapshots", "2 replicas, snapshots")},
            "keys": {f"{transport}, {parts}": ["--transport", transport, "--encrypt", parts] for transport,
                     parts in (("tcp", "none"), ("tcp", "control"), ("tcp", "all"), ("shm", "none"), ("shm", "all"))},
            "travel": {store: ["--replicas", "2", "--snapshot-every", "50", "--set", f"snapshot.store={store}"]
                       for store in ("scheduler", "folder")}}
RATIOS = {"safety": [("2 replicas", "1 replica"), ("1 replica, snapshots", "1 replica"),
                     ("2 replicas, snapshots", "2 replicas")],
          "keys": [("tcp, control", "tcp, none"), ("tcp, all", "tcp, none"), ("shm, all", "shm, none")],
          "travel": [("scheduler", "folder")]}


def measure(args, model, steps, words):
    return train(args.pando, [*MODELS[model], "--dataset", "mnist", "--data", args.data, "--steps", steps,
                              "--micro-batches", "8", "--optimizer", "adam", "--lr", "0.001", "--set",
                              "eval.every_epochs=0", "--workers", "2", "--servers", "2", *words])["images_per_second"]


def main():
    parser = make_parser(__doc__, rounds=5, steps=1000, mlp_steps=100, data=MNIST, pando=PANDO)
    parser.add_argument("what", nargs="?", choices=VARIANTS, default="safety")
    args = parser.parse_args()
    words = VARIANTS[args.what]
    print(f"commit {commit()}, {cpu()}, {args.rounds} rounds interleaved, 2 workers, 2 servers")
    for model, steps in (("CNN", args.steps), ("MLP", args.mlp_steps)):
        figures = in_turns(words, args.rounds, lambda name: measure(args, model, steps, words[name]))
        heading(f"{model}, {steps} steps: images/s")
        for name, values in figures.items():
            row(name, values)
        for over, under in RATIOS[args.what]:
            row(f"{over} / {under}", [a / b for a, b in zip(figures[over], figures[under])])


if __name__ == "__main__":
    main()
