#!/usr/bin/env python3
"""price_of_travel.py [--rounds N] [--steps N] [--mlp-steps N] [--data FOLDER] [--pando PROGRAM]

What it costs in images/s that snapshots travel to the scheduler (snapshot.store = "scheduler", P45) beside servers that
write into a shared folder: snapshots every 50 steps, for the MNIST CNN and for an MLP of 25 million parameters (with
Adam's state a snapshot has 300 MB). Two workers, two servers. Interleaved as price_of_safety.py does. Run it on an idle
machine.
"""
import price_of_safety

SNAPSHOTS = ["--replicas", "2", "--snapshot-every", "50"]
TRAVEL = ("scheduler", [*SNAPSHOTS, "--set", "snapshot.store=scheduler"])
FOLDER = ("folder", [*SNAPSHOTS, "--set", "snapshot.store=folder"])

if __name__ == "__main__":
    price_of_safety.main(__doc__, [TRAVEL, FOLDER], [(TRAVEL, FOLDER)])
