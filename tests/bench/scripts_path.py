"""Makes the scripts of `pando bench` importable; imported first by each test."""

import sys
from argparse import Namespace
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench/python/pando_bench"))


def options(module, **given) -> Namespace:
    """The flags of a benchmark with their defaults, except those given."""
    import argparse

    from flags import Flags

    flags = Flags(argparse.ArgumentParser())
    module.add_flags(flags)
    flags.add_end()
    args = flags.fill(flags.parser.parse_args([]))
    vars(args).update(given)
    return args
