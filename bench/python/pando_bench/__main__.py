"""`pando bench`: measures Pando beside the most that this machine can do. The program pando starts it; by hand:
python3 bench/python/pando_bench --pando build/cli/pando step --quick"""

import argparse
import signal
import sys
from pathlib import Path

import kernels
import page
import push_pull
import recovery
import scaling
import step
from flags import Flags
from measure import Programs, warn_of_load
from results import EXIT_INTERRUPTED, EXIT_USAGE, BenchError

BENCHMARKS = {"push-pull": push_pull, "step": step, "recovery": recovery, "scaling": scaling, "kernels": kernels}
EXIT_CODES = ("Exit codes: 0 completed, 1 failed, 2 bad flag, key or input, 3 peer not reached in time,\n"
              "130 interrupted.")
BUILT_PANDO = Path(__file__).resolve().parents[3] / "build/cli/pando"


def interrupted(*_) -> None:
    """Ends the measurement at the first signal. Later ones do not disturb the end of its processes."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def make_parser():
    parser = argparse.ArgumentParser(
        "pando bench",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EXIT_CODES,
        description="Measures Pando beside what this machine can do at most. What is compared is measured in\n"
        "turns; every figure has its samples, commit and machine.",
    )
    parser.add_argument("--pando", type=Path, default=BUILT_PANDO, help=argparse.SUPPRESS)
    commands = parser.add_subparsers(dest="benchmark", metavar="BENCHMARK", title="benchmarks")
    flags = {}
    for name, module in BENCHMARKS.items():
        flags[name] = Flags(commands.add_parser(name, help=module.HELP, description=module.HELP + ".",
                                                epilog=EXIT_CODES))
        module.add_flags(flags[name])
        flags[name].add_end()
    report = commands.add_parser("report", help="one page of HTML, and SVG plots, of a folder of results",
                                 description="Makes one page of HTML, and SVG plots, of a folder of results.")
    report.add_argument("DIR", type=Path, help="what benchmarks were given as --out")
    return parser, flags


def main() -> int:
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, interrupted)
    parser, flags = make_parser()
    args = parser.parse_args()
    if not args.benchmark:
        parser.print_help(sys.stderr)
        return EXIT_USAGE
    try:
        if args.benchmark == "report":
            print(page.write_report(args.DIR))
            return 0
        programs = Programs(args.pando)
        warn_of_load()
        results = BENCHMARKS[args.benchmark].run(flags[args.benchmark].fill(args), programs)
        results.commit = programs.commit() or results.commit
        results.write(args.out)
        print(results.as_markdown())
        return 0
    except BenchError as error:
        print(f"pando bench: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("pando bench: stopped by a signal", file=sys.stderr)
        return EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
