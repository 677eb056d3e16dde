"""The flags of the benchmarks: lists between commas, numbers with bounds, and defaults that --quick replaces."""

import argparse
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Tuple

Parse = Callable[[str], Any]


def number(low: float, high: float, kind: type = int) -> Parse:
    def parse(text: str):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not low <= value <= high:
            raise argparse.ArgumentTypeError(f"'{text}' is not a number from {low:,} to {high:,}")
        return value

    return parse


def one_of(names: Iterable[str]) -> Parse:
    def parse(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(f"'{text}' is none of {', '.join(names)}")
        return text

    return parse


def listed(parse: Parse) -> Parse:
    def parse_list(text: str) -> List[Any]:
        return [parse(item) for item in text.split(",")]

    return parse_list


def shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


class Flags:
    """The flags of one benchmark. --quick replaces the defaults of flags that are not given."""

    def __init__(self, parser: argparse.ArgumentParser):
        self.parser = parser
        self.defaults: Dict[str, Tuple[Any, Any]] = {}  # by destination: the default, and --quick's

    def add(self, flag: str, default: Any, text: str, parse: Parse = str, quick: Any = None, metavar: str = "") -> None:
        destination = flag.strip("-").replace("-", "_")
        said = f" [{shown(default)}]" if default not in ("", None) else ""
        self.parser.add_argument(flag, type=parse, metavar=metavar or destination.upper(), help=text + said)
        self.defaults[destination] = (default, default if quick is None else quick)

    def add_end(self) -> None:
        """Adds the flags that all benchmarks have."""
        self.parser.add_argument("--quick", action="store_true",
                                 help="a few seconds in all: whether it works, not how fast")
        self.add("--out", Path("bench-results"), "folder of the JSON and Markdown files; made if it is missing", Path,
                 metavar="DIR")

    def fill(self, args: argparse.Namespace) -> argparse.Namespace:
        for destination, (default, quick) in self.defaults.items():
            if getattr(args, destination) is None:
                setattr(args, destination, quick if args.quick else default)
        return args
