#!/usr/bin/env python3
"""price_of_keys.py [--rounds N] [--steps N] [--mlp-steps N] [--data FOLDER] [--pando PROGRAM]

What keys cost in images/s (docs/security.md): over TCP run.encrypt = "control" and "all" beside "none", and with shared
memory, as runs on one machine have it, "all" beside "none"; for the MNIST CNN and for an MLP of 25 million parameters.
Two workers, two servers. Interleaved as price_of_safety.py does. Run it on an idle machine.
"""
import price_of_safety

NONE = ("tcp, none", ["--transport", "tcp", "--encrypt", "none"])
CONTROL = ("tcp, control", ["--transport", "tcp", "--encrypt", "control"])
ALL = ("tcp, all", ["--transport", "tcp", "--encrypt", "all"])
SHARED_NONE = ("shm, none", ["--transport", "shm", "--encrypt", "none"])
SHARED_ALL = ("shm, all", ["--transport", "shm", "--encrypt", "all"])

if __name__ == "__main__":
    price_of_safety.main(__doc__, [NONE, CONTROL, ALL, SHARED_NONE, SHARED_ALL],
                         [(CONTROL, NONE), (ALL, NONE), (SHARED_ALL, SHARED_NONE)])
