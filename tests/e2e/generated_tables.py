"""Tables as people have them, for generated_inputs.py: times, luminosities, ids, other notations, separators and
encodings, missing values. NumPy standardises each in double; what it made, as a plain csv, is the reference."""
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Optional

import numpy as np

from generated_checks import (ERROR, INPUT_TOLERANCE, TRAINS, Program, Run, Variation, accuracy_problems,
                              missing_parts, refused_by_all)

TRAIN_ROWS, TEST_ROWS = 240, 400
CONSTANT_SHARE = 1e-12  # docs/data.md
MISSING = ("", "NA", "N/A", "nan", "NaN", "NULL", "null", "?", "None", "#N/A")
Random = np.random.Generator
Texts = list[str]


@dataclass
class Table:
    """Columns as texts, and how the file is written. Each text is a field; a comma in it is quoted."""
    columns: dict[str, Texts]
    labels: Texts
    words: set[str] = field(default_factory=set)  # the columns that are categories
    separator: str = ","
    newline: str = "\n"
    encoding: str = "utf-8"
    header: Optional[str] = None  # instead of the names; "" for none
    quote_all: bool = False
    start: bytes = b""
    policy: str = "error"
    numbers: Optional[dict[str, np.ndarray]] = None  # that the texts mean; none: those that Python reads

    def field(self, text: str) -> str:
        return f'"{text}"' if self.quote_all or self.separator in text else text

    def rows(self, first: int, last: int) -> Texts:
        table = [*self.columns.values(), self.labels]
        return [self.separator.join(self.field(column[i]) for column in table) for i in range(first, last)]

    def text(self, first: int, last: int) -> bytes:
        names = self.separator.join(self.field(name) for name in [*self.columns, "label"])
        lines = [names if self.header is None else self.header, *self.rows(first, last)]
        lines = lines[1:] if self.header == "" else lines
        return self.start + (self.newline.join(lines) + self.newline).encode(self.encoding)

    def write(self, folder: Path) -> None:
        (folder / "data").mkdir()
        (folder / "data/train.csv").write_bytes(self.text(0, TRAIN_ROWS))
        (folder / "data/test.csv").write_bytes(self.text(TRAIN_ROWS, TRAIN_ROWS + TEST_ROWS))

    def values(self, name: str) -> np.ndarray:
        """The doubles of a column; nan where one is missing."""
        if self.numbers and name in self.numbers:
            return self.numbers[name]
        return np.array([math.nan if t.strip() in MISSING else float(t) for t in self.columns[name]])


def standardise(x: np.ndarray) -> np.ndarray:
    """(x - mean) / deviation of the training rows, in double; 0 where the column is constant or a number is missing.
    A power of two takes the numbers near 1 without rounding, so that squares neither overflow nor vanish."""
    train = x[:TRAIN_ROWS]
    train = train[~np.isnan(train)]
    largest = np.abs(train).max()
    exponent = int(np.frexp(largest)[1]) if largest > 0 else 0
    train, x = np.ldexp(train, -exponent), np.ldexp(x, -exponent)
    mean = train.mean()
    mean += (train - mean).mean()
    away = train - mean
    spread = np.abs(away).max()
    if spread == 0:
        return np.zeros_like(x)
    deviation = spread * math.sqrt(np.square(away / spread).mean())
    if deviation <= CONSTANT_SHARE * abs(mean):
        return np.zeros_like(x)
    return np.where(np.isnan(x), 0, (x - mean) / deviation)


def plain_table(table: Table) -> Table:
    """Returns NumPy's reading of the table as a plain csv, with nothing odd in it."""
    columns = {}
    for name, texts in table.columns.items():
        if name in table.words:
            columns[name] = texts
            continue
        missing = np.isnan(table.values(name))  # its mean is the present ones', so it stays missing
        columns[name] = ["" if gone else repr(float(z)) for z, gone in zip(standardise(table.values(name)), missing)]
    return Table(columns, table.labels, table.words, policy=table.policy)


def inputs_in_numpy(table: Table, inputs: Texts) -> np.ndarray:
    """[rows, inputs], by the names of the inputs alone."""
    made = []
    for name in inputs:
        column, equals, value = name.partition("=")
        if not equals:
            made.append(standardise(table.values(column)))
        elif column in table.words:
            made.append(np.array([float(text == value) for text in table.columns[column]]))
        else:  # says whether the number is missing
            made.append(np.isnan(table.values(column)).astype(float))
    return np.stack(made, axis=1)


def exported_problems(table: Table, run: Run, expected: np.ndarray) -> Texts:
    """The exported mean and deviation, applied to the table's numbers, give the inputs that NumPy makes."""
    problems = []
    names, means, deviations = (run.listed("input_" + key) for key in ("columns", "mean", "deviation"))
    for i, (name, mean, deviation) in enumerate(zip(names, means, deviations)):
        if "=" in name:
            continue
        x = table.values(name)
        made = np.where(np.isnan(x), 0, (x - mean) / deviation)
        away = float(np.abs(made - expected[:, i]).max())
        rounding = 8 * np.finfo(float).eps * abs(mean) / deviation
        if not away <= INPUT_TOLERANCE + rounding:
            problems.append(f"input {name}: the exported moments ({mean}, {deviation}) are {away:.2g} away from NumPy")
    return problems


def job_flags(folder: Path, table: Table) -> Texts:
    return ["--dataset", "csv", "--data", str(folder), "--label", "label", "--missing", table.policy]


def check_trains(program: Program, folder: Path, variation: Variation) -> Texts:
    table: Table = variation.facts["table"]
    flags = job_flags(folder / "data", table)
    done = program.train(folder / "run", [*flags, "--serial"])
    if done.code != 0:
        return [f"train: exit code {done.code}: {done.err.strip()}"]
    samples = f"csv: {TRAIN_ROWS} training samples, {TEST_ROWS} test samples, "
    problems = missing_parts("train", done.err, (samples, *variation.parts))
    if not variation.parts and ": constant" in done.err:
        problems.append(f"train: a column is called constant: {done.err.strip()}")
    run = Run(folder / "run")
    plain = folder / "plain"
    plain.mkdir()
    plain_table(table).write(plain)
    done = program.train(plain / "run", [*job_flags(plain / "data", table), "--serial"])
    if done.code != 0:
        return [*problems, f"train on NumPy's table: exit code {done.code}: {done.err.strip()}"]
    problems += accuracy_problems("on NumPy's table", Run(plain / "run").accuracy, run.accuracy)
    inputs = inputs_in_numpy(table, run.listed("input_columns"))
    found = run.accuracy_in_numpy(inputs[TRAIN_ROWS:], table.labels[TRAIN_ROWS:])
    problems += accuracy_problems("its weights in NumPy", found, run.accuracy)
    problems += exported_problems(table, run, inputs)
    if variation.facts.get("with_servers"):
        done = program.train(folder / "servers", [*flags, "--workers", "1", "--servers", "1"])
        if done.code != 0 or Run(folder / "servers").summary["weights_hash"] != run.summary["weights_hash"]:
            problems.append(f"train with servers: exit code {done.code}, not the serial weights: {done.err.strip()}")
    done = program.run("data", "inspect", str(folder / "data"), "--label", "label", "--missing", table.policy)
    problems += [f"inspect: exit code {done.code}: {done.err.strip()}"] if done.code != 0 else []
    return problems + missing_parts("inspect", done.out, variation.parts)


def check_error(program: Program, folder: Path, variation: Variation) -> Texts:
    table: Table = variation.facts["table"]
    data = str(folder / "data")
    inspect = [data, "--label", "label", "--missing", table.policy]
    parts = (data + "/", *variation.parts)
    return refused_by_all(program, folder, inspect, job_flags(folder / "data", table), parts)


def variation_of(what: str, expected: str, table: Table, *parts: str, with_servers: bool = False) -> Variation:
    check = check_trains if expected == TRAINS else check_error
    return Variation(what, expected, table.write, check, parts, facts={"table": table, "with_servers": with_servers})


# ---- what the columns hold ------------------------------------------------------------------------------------------

def draw(random: Random) -> tuple[np.ndarray, np.ndarray, Texts]:
    """Two numbers of a row, near 0, and its class, which they tell except for noise."""
    u, v = random.normal(size=(2, TRAIN_ROWS + TEST_ROWS))
    noise = 0.3 * random.normal(size=(2, TRAIN_ROWS + TEST_ROWS))
    kinds = np.where(u + noise[0] > 0.4, 0, np.where(v + noise[1] > 0, 1, 2))
    return u, v, ["abc"[k] for k in kinds]


def table_of(random: Random, name: str, text: Callable[[float], str], **how) -> Table:
    """A column `name` that writes u as `text` says, a plain column v, and the label."""
    u, v, labels = draw(random)
    return Table({name: [text(z) for z in u], "v": [f"{z:.4f}" for z in v]}, labels, **how)


def moments(random: Random, i: int) -> Variation:
    """Columns of times, luminosities and ids: what is exported is what the run used."""
    spread = 10 ** random.uniform(1, 5)
    first = 1_600_000_000 + int(random.integers(0, 10 ** 8))
    kinds = [
        ("times in s", lambda z: f"{first + spread * z:.0f}"),
        ("times in ms", lambda z: f"{1000 * first + 1000 * spread * z:.0f}"),
        ("times in us", lambda z: f"{10 ** 6 * first + 10 ** 5 * spread * z:.0f}"),
        ("times in ns", lambda z: f"{10 ** 9 * first + int(10 ** 8 * spread * z)}"),
        ("Julian dates", lambda z: f"{2459000.5 + first / 1e6 + z / 10:.6f}"),
        ("ids", lambda z: f"{10 ** 15 + first * 1000 + int(1e9 * spread * z)}"),
        ("luminosities", lambda z: f"{3e33 * math.exp(z) * spread:.6e}"),
        ("fluxes", lambda z: f"{1e-17 * math.exp(z) / spread:.5e}"),
        ("temperatures in K", lambda z: f"{273.15 + 4 * z:.2f}"),
        ("pressures in Pa, negative too", lambda z: f"{101325 * (z - 50):.3f}"),
    ]
    what, text = kinds[i % len(kinds)]
    table = table_of(random, "x", text)
    if i % 3 == 0:
        words = ["Biscoe", "Dream", "Torgersen, N", "größte"]
        table.columns["island"] = [words[random.integers(0, 4)] for _ in table.labels]
        table.words.add("island")
    return variation_of(what, TRAINS, table, with_servers=i == 0)


def numbers_up_to(random: Random, largest: float) -> Table:
    sign = random.choice([-1, 1])
    return table_of(random, "x", lambda z: repr(float(sign * largest * (0.5 + math.atan(z) / math.pi))))


def with_one(random: Random, text: str) -> tuple[Table, str]:
    """Plain numbers but one: the table, and its line."""
    table = table_of(random, "x", lambda z: f"{z:.3f}")
    row = int(random.integers(0, TRAIN_ROWS))
    table.columns["x"][row] = text
    return table, f"line {row + 2}: column 'x' holds '{text}'"


def extremes(random: Random, i: int) -> Variation:
    """Numbers beyond a float's range, the largest doubles, and their sums."""
    scales = [1e45, 1e150, 10 ** random.uniform(39, 140), 1e-200, 1e-305]
    if i % 2 == 0:
        scale = scales[i // 2 % len(scales)]
        return variation_of(f"numbers up to {scale:.2g}", TRAINS, numbers_up_to(random, scale), with_servers=True)
    kinds = ["1.7976931348623157e+308", "-1.7976931348623157e+308", "1e151", "1e999", "test", "sum"]
    kind = kinds[i // 2 % len(kinds)]
    if kind == "sum":
        table = table_of(random, "x", lambda z: repr(math.copysign(1.6e308, z)))
        return variation_of("sums beyond doubles", ERROR, table, "train.csv: line 2: column 'x'", "data.columns")
    if kind == "test":
        table = table_of(random, "x", lambda z: f"{z:.3f}")
        row = int(random.integers(TRAIN_ROWS, TRAIN_ROWS + TEST_ROWS))
        table.columns["x"][row] = "1e60"
        place = f"test.csv: line {row - TRAIN_ROWS + 2}: column 'x' holds 1e+60"
        return variation_of("a test row beyond floats", ERROR, table, place, "data.columns")
    table, place = with_one(random, kind)
    return variation_of(f"one {kind}", ERROR, table, "train.csv: " + place, "data.columns", "data.missing")


def constants(random: Random, i: int) -> Variation:
    """Columns that are constant except for rounding are 0, with a notice."""
    big = int(random.integers(10 ** 17, 9 * 10 ** 17))
    kinds = [
        ("an id", lambda z: str(big)),
        ("an id and jitter", lambda z: str(10 * big + int(500 * z))),
        ("0.1", lambda z: "0.1"),
        ("a tiny number", lambda z: "-3e-200"),
        ("a large number", lambda z: "6.02e148"),
        ("0, also -0", lambda z: "-0.0" if z > 0 else "0"),
        ("times in ns, within 1 us", lambda z: str(1_700_000_000_000_000_000 + int(300 * z))),
        ("0.3, and 0.1 + 0.2", lambda z: repr(0.1 + 0.2) if z > 0 else "0.3"),
        ("a negative number", lambda z: "-273.15"),
        ("a small spread beside a large mean is none", lambda z: f"{1e9 + round(2 * z)}"),
    ]
    what, text = kinds[i % len(kinds)]
    table = table_of(random, "x", text)
    table.columns["u"] = table_of(random, "x", lambda z: f"{z:.4f}").columns["x"]
    table.labels = ["ab"[float(v) + float(u) > 0] for v, u in zip(table.columns["v"], table.columns["u"])]
    parts = () if "spread" in what else ("column x: constant in the training rows", "its input is 0")
    return variation_of(what, TRAINS, table, *parts)


# ---- how they are written -------------------------------------------------------------------------------------------

def numbers(random: Random, i: int) -> Variation:
    """Numbers that are written in another way, and are read."""
    kinds = [
        ("a plus sign", lambda z: f"{z:+.3f}", {}),
        ("a number that rounds to 0", lambda z: "1e-400" if abs(z) < 0.5 else f"{z:.3f}", {}),
        ("no digit before the point", lambda z: f"{z / 10:.3f}".replace("0.", "."), {}),
        ("no digit after the point", lambda z: f"{10 * z:.0f}.", {}),
        ("exponents", lambda z: f"{z:+.4E}", {}),
        ("quotes", lambda z: f"{z:.3f}", {"quote_all": True}),
        ("blanks around", lambda z: f"  {z:.3f}\t", {}),
        ("CRLF and a byte order mark", lambda z: f"{z:.3f}", {"newline": "\r\n", "encoding": "utf-8-sig"}),
        ("many digits", lambda z: f"{z:+.40f}", {}),
        ("zeros before", lambda z: f"{z:011.3f}", {}),
        ("empty lines", lambda z: f"{z:.3f}", {"newline": "\n\n"}),
        ("a plus sign in the exponent, quoted", lambda z: f"{z:+.3e}", {"quote_all": True, "newline": "\r\n"}),
    ]
    what, text, how = kinds[i % len(kinds)]
    return variation_of(what, TRAINS, table_of(random, "x", text, **how))


def separators(random: Random, i: int) -> Variation:
    """Other separators, with and without decimal commas."""
    plain, comma = (lambda z: f"{z:.3f}"), (lambda z: f"{z:.3f}".replace(".", ","))
    excel = {"separator": ";", "newline": "\r\n", "encoding": "utf-8-sig"}
    kinds = [
        ("tabs", plain, {"separator": "\t"}, "separated by tabs"),
        ("semicolons", plain, {"separator": ";"}, "separated by semicolons"),
        ("bars", plain, {"separator": "|"}, "separated by bars"),
        ("blanks", plain, {"separator": " "}, "separated by blanks"),
        ("semicolons and decimal commas", comma, {"separator": ";"}, "decimal comma"),
        ("tabs and decimal commas", comma, {"separator": "\t"}, "decimal comma"),
        ("blanks and decimal commas", comma, {"separator": " "}, "decimal comma"),
        ("bars and quotes", plain, {"separator": "|", "quote_all": True}, "separated by bars"),
        ("semicolons, as Excel writes them", comma, excel, "decimal comma"),
        ("tabs, and a comma in a name", plain, {"separator": "\t"}, "separated by tabs"),
        ("semicolons, quotes and decimal commas", comma, {"separator": ";", "quote_all": True}, "decimal comma"),
    ]
    what, text, how, part = kinds[i % len(kinds)]
    name = "size, mm" if "name" in what else "x"
    table = table_of(random, name, text, **how)
    if text is comma:
        table.columns["v"] = [number.replace(".", ",") for number in table.columns["v"]]
    return variation_of(what, ERROR, table, "train.csv: line 1: ", part, "convert it: ")


def grouped(number: float, sign: str, point: str = ".") -> str:
    return f"{1e4 * (number + 5):,.2f}".replace(",", "_").replace(".", point).replace("_", sign)


def lakh(number: float) -> str:
    """As in India: 12,34,567."""
    digits = str(int(1e6 * (number + 5)))
    return f"{digits[:-5]},{digits[-5:-3]},{digits[-3:]}"


def notations(random: Random, i: int) -> Variation:
    """Numbers in another notation are never silently categories."""
    how_to = "it looks like a number"
    kinds = [
        ("thousands, commas", lambda z: grouped(z, ","), how_to),
        ("thousands, points, and decimal commas", lambda z: grouped(z, ".", ","), how_to),
        ("thousands, blanks", lambda z: grouped(z, " "), how_to),
        ("thousands, no-break spaces", lambda z: grouped(z, "\u00a0", ","), how_to),
        ("thousands, apostrophes", lambda z: grouped(z, "'"), how_to),
        ("thousands, as in India", lakh, how_to),
        ("decimal commas, in quotes", lambda z: f"{z:.2f}".replace(".", ","), how_to),
        ("per cent", lambda z: f"{z:.1f}%", how_to),
        ("dollars", lambda z: f"${abs(z):.2f}", how_to),
        ("euros, behind the number", lambda z: f"{abs(z):.2f} €".replace(".", ","), how_to),
        ("typographic minus", lambda z: f"{-abs(z):.2f}".replace("-", "\u2212"), how_to),
        ("Fortran's exponents", lambda z: f"{z:.3e}".replace("e", "D"), how_to),
        ("an accountant's minus", lambda z: f"({abs(z):.1f})", how_to),
        ("decimal commas, without quotes", None, "a decimal comma?"),
        ("thousands, and a dash for a missing one", lambda z: "-" if z > 2 else grouped(z, ","), how_to),
    ]
    what, text, part = kinds[i % len(kinds)]
    if text is not None:
        table = table_of(random, "x", text)
        first = 2 if table.columns["x"][0] != "-" else 3
        return variation_of(what, ERROR, table, f"train.csv: line {first}: column 'x' holds", part)
    table = table_of(random, "x", lambda z: f"{z:.2f}", separator=";")
    rows = [row.replace(".", ",").replace(";", ",") for row in table.rows(0, TRAIN_ROWS)]
    table.separator, table.header = ",", "x,v,label\n" + "\n".join(rows)
    return variation_of(what, ERROR, table, "train.csv: line 2: 5 fields, expected 3", part)


def headers(random: Random, i: int) -> Variation:
    """A missing header, and lines around it."""
    whole, line = (lambda z: f"{100 * z:.0f}"), "train.csv: line 1: "
    kinds = [
        ("no header, fractions", lambda z: f"{z:.2f}", "", ERROR, (line, "header seems to be missing")),
        ("no header, plus signs", lambda z: f"{z:+.2f}", "", ERROR, (line, "header seems to be missing")),
        ("no header, whole numbers", whole, "", ERROR, (line, "header seems to be missing")),
        ("no header, exponents", lambda z: f"{z:.0e}", "", ERROR, (line, "header seems to be missing")),
        ("a name is empty, as pandas writes an index", whole, ",v,label", ERROR, ("has no name", "data.columns")),
        ("a title above", whole, "Table 1: stars", ERROR, (line, "'label'")),
        ("a comment above", whole, "# made by me", ERROR, (line, "'label'")),
        ("units below", whole, "x,v,label\nkm,s,", ERROR, ("train.csv: line 2: column",)),
        ("a name twice", whole, "v,v,label", ERROR, (line, "2 columns 'v'")),
        ("years as names", whole, "2019,2020,label", TRAINS, ()),
        ("no name fits", whole, "x,v,Label", ERROR, (line, "did you mean 'Label'")),
    ]
    what, text, header, expected, parts = kinds[i % len(kinds)]
    table = table_of(random, "x", text, header=header)
    if header == "":
        table.columns["v"] = table_of(random, "v", text).columns["v"]
    if expected == TRAINS:
        table.columns, table.header = {"2019": table.columns["x"], "2020": table.columns["v"]}, None
    return variation_of(what, expected, table, *parts)


def encodings(random: Random, i: int) -> Variation:
    """Other encodings: read, or named with a way to convert them."""
    how_to, line = "convert it: ", "train.csv: line "
    utf16 = {"start": b"\xff\xfe", "encoding": "utf-16-le"}
    kinds = [
        ("UTF-16, little-endian", "x", utf16, ERROR, ("line 1: ", "UTF-16", how_to)),
        ("UTF-16, big-endian", "x", {"start": b"\xfe\xff", "encoding": "utf-16-be"}, ERROR, ("line 1: ", "UTF-16")),
        ("UTF-16 without a mark", "x", {"encoding": "utf-16-le"}, ERROR, ("line 1: ", "UTF-16", how_to)),
        ("UTF-16 and CRLF", "größe", {**utf16, "newline": "\r\n"}, ERROR, ("line 1: ", "UTF-16", how_to)),
        ("Latin-1 in a name", "größe", {"encoding": "latin-1"}, ERROR, (line + "1: ", "UTF-8", how_to)),
        ("Latin-1 in a category", "ort", {"encoding": "latin-1"}, ERROR, (line, "column 'ort'", how_to)),
        ("Latin-1 in the label", "x", {"encoding": "latin-1"}, ERROR, (line, "column 'label'", how_to)),
        ("Windows-1252", "ort", {"encoding": "cp1252"}, ERROR, (line, "column 'ort'", how_to)),
        ("CR alone", "x", {"newline": "\r"}, ERROR, (line + "1: ", "CR alone", how_to)),
        ("CR alone and a byte order mark", "x", {"newline": "\r", "encoding": "utf-8-sig"}, ERROR, ("CR alone",)),
        ("UTF-8 with a mark", "größe", {"newline": "\r\n", "encoding": "utf-8-sig"}, TRAINS, ()),
        ("UTF-8", "größe", {}, TRAINS, ()),
        ("Latin-1 in a number", "x", {"encoding": "latin-1"}, ERROR, (line, "column 'x' holds", how_to)),
    ]
    what, name, how, expected, parts = kinds[i % len(kinds)]
    table = table_of(random, name, lambda z: f"{z:.3f}", **how)
    if name == "ort":
        words = ["Bonn", "\u201eKöln\u201c" if "Windows" in what else "Köln"]
        table.columns[name] = [words[random.integers(0, 2)] for _ in table.labels]
        table.words.add(name)
    if "label" in what:
        table.labels = [label.replace("a", "müde") for label in table.labels]
    if "number" in what:
        table.columns["x"][7] = "1\u00a0475"
    return variation_of(what, expected, table, *parts)


def missing_values(random: Random, i: int) -> Variation:
    """Missing values: an error that names the policies, the mean, or a category."""
    marker = MISSING[i % len(MISSING)]
    policy = ["error", "mean", "category"][i % 3]
    table = table_of(random, "x", lambda z: f"{1e9 + 1000 * z:.2f}", policy=policy)
    rows = np.flatnonzero(random.random(TRAIN_ROWS + TEST_ROWS) < 0.1)
    for row in rows:
        table.columns["x"][row] = marker
    what = f"'{marker}', --missing {policy}"
    if policy == "error":
        place = f"train.csv: line {rows[0] + 2}: column 'x' holds '{marker}'"
        return variation_of(what, ERROR, table, place, "--missing mean", "--missing category", "data.missing")
    if i % 2 == 0:
        table.columns["island"] = [["Biscoe", "Dream"][random.integers(0, 2)] for _ in table.labels]
        table.words.add("island")
        if policy == "category":
            table.columns["island"][3] = ""  # one more value
    return variation_of(what, TRAINS, table)


KINDS = {"moments": moments, "extremes": extremes, "constants": constants, "numbers": numbers,
         "separators": separators, "notations": notations, "headers": headers, "encodings": encodings,
         "missing": missing_values}
