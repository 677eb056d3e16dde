#!/usr/bin/python3
"""generated_inputs.py [--seed 1] [--count 10] [--kind KIND ...] [--quick] [--list] [--keep FOLDER] [--pando PROGRAM]

Odd tables, folders of pictures, idx files and weights, drawn from a seed: at least --count variations of each kind.
`pando train`, `inspect` and `data check` run on each. It must either train, with an accuracy within half a point of
what NumPy makes of the same file, or end with one error that names the file, the place and what to do. The list of
variations (--list) says which; the other outcome is a failure. --quick takes two of each kind, others for each seed.

Prints one line per variation; exit code 0 where all are right, 1 where one is not, 77 without NumPy.
"""
import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

SKIPPED = 77
try:
    import numpy as np
    import generated_pictures
    import generated_tables
    from generated_checks import ERROR, TRAINS, Program, Variation
except ImportError as missing:
    if missing.name != "numpy":
        raise
    print("SKIPPED: generated_inputs.py needs NumPy: apt-get install python3-numpy, and run it with /usr/bin/python3")
    sys.exit(SKIPPED)

ROOT = Path(__file__).resolve().parent.parent.parent
KINDS = {**generated_tables.KINDS, **generated_pictures.KINDS}
TEMPLATES_MAX = 15  # of a kind: the most that one lists
QUICK_COUNT = 2


def draw_variation(seed: int, kind: str, i: int) -> Variation:
    """The same for a seed, kind and number: others need not be drawn."""
    return KINDS[kind](np.random.default_rng([seed, sorted(KINDS).index(kind), i]), i)


def run_variation(program: Program, variation: Variation, folder: Path) -> list[str]:
    folder.mkdir(parents=True)
    try:
        variation.write(folder)
        return variation.check(program, folder, variation)
    except (OSError, ValueError, KeyError) as error:  # a summary that is not there, bytes that are not UTF-8
        return [f"{type(error).__name__}: {error}"]


def check_itself(program: Program, folder: Path) -> list[str]:
    """Wrong expectations, and moments that are not those of the run, must be found."""
    found = []
    for kind, expected in (("numbers", ERROR), ("notations", TRAINS)):
        variation = draw_variation(1, kind, 0)
        flipped = generated_tables.variation_of(variation.what, expected, variation.facts["table"])
        found.append((f"{kind}: a wrong expectation", "exit code", run_variation(program, flipped, folder / expected)))
    variation = draw_variation(1, "moments", 1)
    numbers = variation.facts["table"].values("x")
    variation.facts["table"].numbers = {"x": np.float32(numbers).astype(float)}  # as if float were wide enough
    found.append(("moments of rounded numbers", "exported moments",
                  run_variation(program, variation, folder / "moments")))
    return [f"not found: {what}" for what, part, problems in found if part not in " ".join(problems)]


def chosen(args: argparse.Namespace, kind: str) -> list[int]:
    if not args.quick:
        return list(range(args.count))
    order = np.random.default_rng([args.seed, sorted(KINDS).index(kind)]).permutation(args.count)
    return [int(i) for i in order[:QUICK_COUNT]]


def check_kind(args: argparse.Namespace, program: Program, kind: str, folder: Path) -> tuple[int, int]:
    """How many variations ran, and how many failed."""
    failure_count = 0
    for i in chosen(args, kind):
        variation = draw_variation(args.seed, kind, i)
        start = time.monotonic()
        problems = [] if args.list else run_variation(program, variation, folder / f"{list(KINDS).index(kind)}-{i}")
        failure_count += bool(problems)
        state = "FAILED" if problems else "" if args.list else f"ok, {time.monotonic() - start:.1f} s"
        print(f"{kind:15} {i:2}  {variation.expected:9}  {variation.what:48} {state}", flush=True)
        for problem in problems:
            print(f"    {problem}")
    return len(chosen(args, kind)), failure_count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=TEMPLATES_MAX, help="variations of each kind")
    parser.add_argument("--kind", nargs="+", choices=sorted(KINDS), default=list(KINDS))
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_COUNT} of each kind")
    parser.add_argument("--list", action="store_true", help="print the variations and run none")
    parser.add_argument("--keep", type=Path, help="a folder for the inputs and runs")
    parser.add_argument("--pando", default=os.environ.get("PANDO_PROGRAM", str(ROOT / "build/cli/pando")))
    args = parser.parse_args()
    program = Program(args.pando)
    print(f"seed {args.seed}")
    with tempfile.TemporaryDirectory() as temp:
        folder = args.keep or Path(temp)
        counts = [check_kind(args, program, kind, folder) for kind in args.kind]
        problems = [] if args.list else check_itself(program, folder / "itself")
    for problem in problems:
        print(f"the checks themselves: {problem}")
    count, failure_count = (sum(column) for column in zip(*counts))
    print(f"{count} variations, {failure_count} failed (--seed {args.seed})")
    return 1 if failure_count > 0 or problems else 0


if __name__ == "__main__":
    sys.exit(main())
