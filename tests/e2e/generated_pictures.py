"""Folders of pictures, idx files and weights as people have them, for generated_inputs.py: links, sub-folders,
endings and permissions; damaged gzip files; labels of EMNIST; tensors of types that Pando does not know."""
import gzip
import json
import os
import shutil
import struct
import zlib
from pathlib import Path
from typing import Callable, Optional

import numpy as np

from generated_checks import (ERROR, EXIT_FAILED, TRAINS, Program, Run, Variation, accuracy_problems, error_problems,
                              missing_parts, read_safetensors, refused_by_all)

Random = np.random.Generator
Texts = list[str]
CLASSES = ("ants", "bees", "wasps")
TRAIN_PICTURES, TEST_PICTURES = 12, 40  # of a class
SIDE = 8
IMAGENET = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])  # mean and deviation


def png(colour: np.ndarray) -> bytes:
    """A picture of one colour: its crop and its resizing have the same colour."""
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    row = b"\0" + bytes(colour.astype(np.uint8)) * SIDE
    head = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(row * SIDE)) + chunk(b"IEND", b"")


class Folders:
    """An image folder of three classes, whose colours overlap."""

    def __init__(self, random: Random, root: Path):
        self.root = root
        self.test_colours: list[np.ndarray] = []
        self.test_labels: Texts = []
        for split, count in (("train", TRAIN_PICTURES), ("val", TEST_PICTURES)):
            for label, name in enumerate(CLASSES):
                (root / split / name).mkdir(parents=True)
                for n in range(count):
                    colour = np.clip(random.normal([60 + 60 * label, 120, 180 - 50 * label], 30), 0, 255).round()
                    (root / split / name / f"{n}.png").write_bytes(png(colour))
                    if split == "val":
                        self.test_colours.append(colour)
                        self.test_labels.append(name)

    def inputs(self) -> np.ndarray:
        """[test pictures, channels * pixels], as PyTorch orders them."""
        x = (np.array(self.test_colours) / 255 - IMAGENET[0]) / IMAGENET[1]
        return np.repeat(x, SIDE * SIDE, axis=1)

    def train(self) -> list[Path]:
        return [self.root / "train" / name / f"{n}.png" for name in CLASSES for n in range(TRAIN_PICTURES)]


def folder_flags(data: Path) -> Texts:
    return ["--dataset", "imagefolder", "--data", str(data), "--resize", str(SIDE)]


def without_rights() -> tuple[str, ...]:
    """Permissions hold for root too, in what runs behind this prefix."""
    return ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()


def trained_problems(program: Program, folder: Path, folders: Folders, flags: Texts, count: int) -> Texts:
    done = program.train(folder / "run", [*folder_flags(folders.root), *flags, "--serial"])
    if done.code != 0:
        return [f"train: exit code {done.code}: {done.err.strip()}"]
    samples = f"{count} training samples, {len(folders.test_labels)} test samples, 3 classes: ants, bees, wasps"
    problems = missing_parts("train", done.err, (samples, ))
    run = Run(folder / "run")
    found = run.accuracy_in_numpy(folders.inputs(), folders.test_labels)
    return problems + accuracy_problems("its weights in NumPy", found, run.accuracy)


def check_read(program: Program, folder: Path, variation: Variation) -> Texts:
    """It trains, and `train`, `inspect` and `data check` say the same about what is not read."""
    folders: Folders = variation.facts["folders"]
    problems = trained_problems(program, folder, folders, [], variation.facts["count"])
    log = program.train(folder / "again", [*folder_flags(folders.root), "--serial"]).err
    inspect = program.run("data", "inspect", str(folders.root), "--sheet", "")
    check = program.run("data", "check", str(folders.root))
    for name, text in (("train", log), ("inspect", inspect.out), ("data check", check.out)):
        problems += missing_parts(name, text, variation.parts)
        if not variation.parts and "not read" in text:
            problems.append(f"{name}: something is not read: {text.strip()}")
    if inspect.code != 0:
        problems.append(f"inspect: exit code {inspect.code}: {inspect.err.strip()}")
    lost = 0 if not variation.parts or "hidden folder" in " ".join(variation.parts) else EXIT_FAILED
    if check.code != lost:
        problems.append(f"data check: exit code {check.code}, expected {lost}: {check.out} {check.err}".strip())
    return problems


def check_lost(program: Program, folder: Path, variation: Variation) -> Texts:
    """An error, until `data check` has written a list of the pictures that the run does without."""
    folders: Folders = variation.facts["folders"]
    data = str(folders.root)
    parts = (data, "data.skip", *variation.parts)
    problems = refused_by_all(program, folder, [data], folder_flags(folders.root), parts)
    done = program.run("data", "check", data)
    problems += missing_parts("data check", done.out, (*variation.parts[1:], "data.skip=skip.txt"))
    if done.code != EXIT_FAILED:
        problems.append(f"data check: exit code {done.code}: {done.err.strip()}")
    skipping = ["--set", "data.skip=skip.txt"]
    return problems + trained_problems(program, folder, folders, skipping, variation.facts["count"])


def check_refused(program: Program, folder: Path, variation: Variation) -> Texts:
    """One error, of `data check` too."""
    data = str(variation.facts["folders"].root)
    prefix = without_rights()
    parts = (data, *variation.parts)
    problems = refused_by_all(program, folder, [data, "--dataset", "imagefolder"], folder_flags(Path(data)), parts,
                              prefix)
    return problems + error_problems("data check", program.run("data", "check", data, prefix=prefix), parts)


Change = Callable[[Folders], None]


def folder_variation(random: Random, what: str, change: Change, check: Callable, count: int,
                     *parts: str) -> Variation:
    facts = {"count": count}

    def write(folder: Path) -> None:
        facts["folders"] = Folders(random, folder / "data")
        change(facts["folders"])
    return Variation(what, TRAINS if check is check_read else ERROR, write, check, parts, facts=facts)


def move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)


def link(source: Path, target: Path) -> None:
    source.parent.mkdir(parents=True, exist_ok=True)
    source.symlink_to(target)


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)


def fold(f: Folders, random: Random) -> None:
    for path in f.train():
        if random.random() < 0.5:
            move(path, path.parent / f"part-{random.integers(0, 3)}" / path.name)


def link_elsewhere(f: Folders) -> None:
    move(f.train()[0], f.root / "elsewhere/0.png")
    f.train()[0].symlink_to(f.root / "elsewhere/0.png")
    move(f.root / "train/bees", f.root / "elsewhere/bees")
    (f.root / "train/bees").symlink_to(f.root / "elsewhere/bees")


def hide(f: Folders) -> None:
    for split in ("train", "val"):
        copy(f.train()[0], f.root / split / ".ipynb_checkpoints/0.png")


def litter(f: Folders) -> None:
    for name in ("Thumbs.db", ".DS_Store", "._1.png", "labels.txt"):
        (f.root / "train/bees" / name).write_bytes(b"no picture")
        (f.root / "train" / name).write_bytes(b"no picture")


def folders_read(random: Random, i: int) -> Variation:
    """Folders that are read, with a notice of what is left out."""
    whole, ending = len(CLASSES) * TRAIN_PICTURES, "picture whose name does not end in"
    kinds: list[tuple] = [
        ("sub-folders", lambda f: fold(f, random), whole),
        ("links to a file and a folder", link_elsewhere, whole),
        ("a dangling link", lambda f: link(f.root / "train/ants/x.png", Path("/nowhere/x.png")), whole,
         "1 not read: 'train/ants/x.png' is a link that leads to no file"),
        (".ipynb_checkpoints as a class", hide, whole, "2 not read: 'train/.ipynb_checkpoints', for example,",
         "hidden folder"),
        (".ipynb_checkpoints in a class", lambda f: copy(f.train()[1], f.root / "train/ants/.ipynb_checkpoints/1.png"),
         whole, "1 not read: 'train/ants/.ipynb_checkpoints' is a hidden folder"),
        ("a picture outside the classes", lambda f: copy(f.train()[0], f.root / "val/x.png"), whole,
         "1 not read: 'val/x.png' is a picture outside the folders of classes"),
        ("a link to its own folder", lambda f: link(f.root / "train/bees/all", f.root / "train/bees"), whole,
         "1 not read: 'train/bees/all' is a link to a folder that holds the link"),
        ("other files", litter, whole),
        ("an ending in capitals", lambda f: move(f.train()[3], f.train()[3].with_suffix(".PNG")), whole),
        ("two wrong endings", lambda f: [move(f.train()[n], f.train()[n].with_suffix(".bmp")) for n in (5, 17)],
         whole - 2, f"2 not read: 'train/ants/5.bmp', for example, is a {ending}"),
        ("a dangling link as a class", lambda f: link(f.root / "train/flies", Path("/nowhere")), whole,
         "1 not read: 'train/flies' is a link that leads to no file"),
        ("a link to itself as a class", lambda f: link(f.root / "train/flies", Path("flies")), whole,
         "1 not read: 'train/flies' is a link that leads to no file"),
        ("a link to itself", lambda f: link(f.root / "train/bees/x.png", Path("x.png")), whole,
         "1 not read: 'train/bees/x.png' is a link that leads to no file"),
    ]
    what, change, count, *parts = kinds[i % len(kinds)]
    return folder_variation(random, what, change, check_read, count, *parts)


def lose(f: Folders, count: int, how: Callable[[Path], Optional[object]]) -> None:
    """All but 2 of each class for 30."""
    for n, path in enumerate(path for path in f.train() if int(path.stem) < count // len(CLASSES)):
        how(path)


def dangle(path: Path) -> None:
    path.unlink()
    path.symlink_to("/nowhere/" + path.name)


def shut(f: Folders, path: str, mode: int = 0) -> None:
    (f.root / path).chmod(mode)


def folders_refused(random: Random, i: int) -> Variation:
    """Folders of which more than one picture in ten would vanish, and folders that cannot be read."""
    def vanish(what: str, how: Callable, reason: str, lost: int = 30) -> tuple:
        whole = len(CLASSES) * (TRAIN_PICTURES + TEST_PICTURES)
        return (what, lambda f: lose(f, lost, how), check_lost, len(CLASSES) * TRAIN_PICTURES - lost,
                f"{lost} of {whole} pictures are not read", f"{lost} not read: 'train/ants/0", reason)
    ending = "a picture whose name does not end in"
    closed = "cannot be listed: Permission denied"
    kinds: list[tuple] = [
        vanish("30 of 36 are dangling links", dangle, "a link that leads to no file"),
        vanish("30 of 36 are .bmp", lambda p: move(p, p.with_suffix(".bmp")), ending),
        vanish("30 of 36 have no ending", lambda p: move(p, p.with_suffix("")), ending),
        vanish("30 of 36 are .png_large", lambda p: move(p, p.with_suffix(".png_large")), ending),
        vanish("18 of 36 are .webp", lambda p: move(p, p.with_suffix(".webp")), ending, 18),
        ("a class cannot be listed", lambda f: shut(f, "train/bees"), check_refused, 0, "train/bees: " + closed),
        ("a sub-folder cannot be listed", lambda f: (copy(f.train()[0], f.root / "val/ants/a/1.png"),
                                                     shut(f, "val/ants/a")),
         check_refused, 0, "val/ants/a: " + closed),
        ("a split cannot be listed", lambda f: shut(f, "val"), check_refused, 0, "val: " + closed),
        ("the folder cannot be entered", lambda f: shut(f, "."), check_refused, 0, "Permission denied"),
        ("a class cannot be entered", lambda f: shut(f, "train/ants", 0o444), check_refused, 0, "train/ants",
         "Permission denied"),
        ("a picture cannot be opened", lambda f: shut(f, "train/ants/3.png"), check_refused, 0, "train/ants/3.png",
         "Permission denied"),
        ("a class is empty", lambda f: [path.unlink() for path in f.train()[:TRAIN_PICTURES]], check_refused, 0,
         "train/ants: holds no picture"),
        ("all pictures of a class are dangling links", lambda f: [dangle(path) for path in f.train()[:TRAIN_PICTURES]],
         check_refused, 0, "train/ants: holds no picture", "a link that leads to no file"),
    ]
    what, change, check, count, *parts = kinds[i % len(kinds)]
    return folder_variation(random, what, change, check, count, *parts)


# ---- idx files ------------------------------------------------------------------------------------------------------

IDX_TRAIN, IDX_TEST = 1400, 400  # 1.1 MB of noise: a reader by pieces of 1 MiB once missed the end of its sum
MNIST = (0.1307, 0.3081)


class Idx:
    """MNIST's four files. The pictures are noise, lighter by their class."""

    def __init__(self, random: Random, folder: Path, class_count: int = 10, first: int = 0):
        self.folder = folder
        folder.mkdir()
        self.labels: dict[str, np.ndarray] = {}
        self.pixels: dict[str, np.ndarray] = {}
        for split, count in (("train", IDX_TRAIN), ("t10k", IDX_TEST)):
            labels = first + random.integers(0, class_count, count)
            pixels = random.integers(0, 200, (count, 28 * 28)) + 5 * (labels % 10)[:, None]
            self.labels[split], self.pixels[split] = labels, pixels
            head = struct.pack(">IIII", 0x803, count, 28, 28)
            (folder / f"{split}-images-idx3-ubyte").write_bytes(head + pixels.astype(np.uint8).tobytes())
            head = struct.pack(">II", 0x801, count)
            (folder / f"{split}-labels-idx1-ubyte").write_bytes(head + labels.astype(np.uint8).tobytes())

    def pack(self, name: str, change: Callable[[bytes], bytes]) -> None:
        path = self.folder / name
        (self.folder / (name + ".gz")).write_bytes(change(gzip.compress(path.read_bytes(), mtime=0)))
        path.unlink()


def idx_flags(idx: Idx) -> Texts:
    return ["--dataset", "mnist", "--data", str(idx.folder)]


def check_idx_read(program: Program, folder: Path, variation: Variation) -> Texts:
    idx: Idx = variation.facts["idx"]
    done = program.train(folder / "run", [*idx_flags(idx), "--serial"])
    if done.code != 0:
        return [f"train: exit code {done.code}: {done.err.strip()}"]
    problems = missing_parts("train", done.err, (f"{IDX_TRAIN} training samples, {IDX_TEST} test samples", ))
    run = Run(folder / "run")
    inputs = (idx.pixels["t10k"] / 255 - MNIST[0]) / MNIST[1]
    found = run.accuracy_in_numpy(inputs, [str(label) for label in idx.labels["t10k"]])
    return problems + accuracy_problems("its weights in NumPy", found, run.accuracy)


def check_idx_refused(program: Program, folder: Path, variation: Variation) -> Texts:
    idx: Idx = variation.facts["idx"]
    data = str(idx.folder)
    return refused_by_all(program, folder, [data, "--dataset", "mnist"], idx_flags(idx), (data, *variation.parts))


def idx_variation(random: Random, what: str, expected: str, change: Callable[[Idx], object], *parts: str,
                  **labels: int) -> Variation:
    facts: dict = {}

    def write(folder: Path) -> None:
        facts["idx"] = Idx(random, folder / "data", **labels)
        change(facts["idx"])
    check = check_idx_read if expected == TRAINS else check_idx_refused
    return Variation(what, expected, write, check, parts, facts=facts)


def flip(data: bytes, back: int) -> bytes:
    at = len(data) - back
    return data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1:]


def twice(data: bytes) -> bytes:
    """The same in two members, as `cat a.gz b.gz` makes them."""
    whole = gzip.decompress(data)
    return gzip.compress(whole[:99_999], mtime=0) + gzip.compress(whole[99_999:], mtime=0)


def gzips(random: Random, i: int) -> Variation:
    """Gzip files that are cut or damaged in their last bytes."""
    images, labels = "train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
    again = "download it again"
    kinds: list[tuple] = [
        ("whole", TRAINS, images, lambda d: d),
        ("one byte is cut", ERROR, images, lambda d: d[:-1], "truncated", again),
        ("the sum is cut", ERROR, images, lambda d: d[:-8], "truncated", again),
        ("half of the sum is cut", ERROR, images, lambda d: d[:-6], "truncated", again),
        ("a small file's sum is cut", ERROR, labels, lambda d: d[:-int(random.integers(1, 9))], "truncated", again),
        ("the sum is wrong", ERROR, images, lambda d: flip(d, int(random.integers(5, 9))), "damaged", again),
        ("the length is wrong", ERROR, images, lambda d: flip(d, int(random.integers(1, 5))), "damaged", again),
        ("two members", TRAINS, images, twice),
        ("the second member's sum is cut", ERROR, images, lambda d: twice(d)[:-3], "truncated", again),
        ("zeros behind", TRAINS, images, lambda d: d + bytes(512)),
        ("a member begins behind", ERROR, images, lambda d: d + b"\x1f\x8b\x08\0\0", "truncated", again),
        ("half is cut", ERROR, images, lambda d: d[:len(d) // 2], "truncated", again),
        ("a small file's sum is wrong", ERROR, labels, lambda d: flip(d, 6), "damaged", again),
    ]
    what, expected, name, change, *parts = kinds[i % len(kinds)]
    parts = [f"{name}.gz", *parts] if parts else []
    return idx_variation(random, what, expected, lambda idx: idx.pack(name, change), *parts)


def emnist(random: Random, i: int) -> Variation:
    """EMNIST's labels: the error names those that were expected."""
    what = ("expected 0 to 9", "EMNIST")
    zip_labels = (lambda idx: idx.pack("train-labels-idx1-ubyte", lambda d: d))
    alone = (lambda idx: None)

    def rename(idx: Idx) -> None:
        for path in list(idx.folder.iterdir()):
            path.rename(idx.folder / ("emnist-letters-" + path.name))

    def one_wrong(idx: Idx) -> None:
        path = idx.folder / "t10k-labels-idx1-ubyte"
        path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    kinds: list[tuple] = [
        ("digits", TRAINS, alone, (), {}),
        ("letters, 1 to 26", ERROR, alone, what, {"class_count": 26, "first": 1}),
        ("balanced, 0 to 46", ERROR, alone, what, {"class_count": 47}),
        ("by class, 0 to 61", ERROR, alone, what, {"class_count": 62}),
        ("1 to 10", ERROR, alone, what, {"class_count": 10, "first": 1}),
        ("letters, packed", ERROR, zip_labels, what + ("unpacked data", ), {"class_count": 26, "first": 1}),
        ("digits, packed", TRAINS, zip_labels, (), {}),
        ("one wrong label, the last", ERROR, one_wrong, ("t10k-labels", "byte 407", "label 399 is 255") + what, {}),
        ("names of EMNIST", ERROR, rename, ("holds none of train-images-idx3-ubyte.gz", ), {}),
        ("1 to 9", TRAINS, alone, (), {"class_count": 9, "first": 1}),
    ]
    name, expected, change, parts, labels = kinds[i % len(kinds)]
    return idx_variation(random, name, expected, change, *parts, **labels)


# ---- weights --------------------------------------------------------------------------------------------------------

def write_safetensors(path: Path, tensors: dict[str, tuple[str, list[int], bytes]]) -> None:
    header, first = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [first, first + len(data)]}
        first += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


# Types that Pando does not read, with the bits of an element.
TYPES = [("F4", 4), ("F8_E8M0", 8), ("C64", 64), ("F6_E2M3", 6), ("F8_E4M3FNUZ", 8), ("I4", 4), ("C128", 128),
         ("F64", 64), ("BOOL", 8), ("X_NEW", 24)]


def check_weights(program: Program, folder: Path, variation: Variation) -> Texts:
    """A run that starts from weights, a tensor of which has another type."""
    idx: Idx = variation.facts["idx"]
    done = program.train(folder / "first", [*idx_flags(idx), "--serial"])
    if done.code != 0:
        return [f"train: exit code {done.code}: {done.err.strip()}"]
    dtype, bits = variation.facts["type"]
    tensors, _ = read_safetensors(folder / "first/final.safetensors")
    plain = {name: ("F32", list(values.shape), values.tobytes()) for name, values in tensors.items()}
    odd = (dtype, [8, 4], bytes(32 * bits // 8))
    write_safetensors(folder / "plain.safetensors", plain)
    name = "fc2.bias" if variation.expected == ERROR else "quantised.scale"
    write_safetensors(folder / "odd.safetensors", {**plain, name: odd})
    start = ["--init", str(folder / "odd.safetensors")]
    if variation.expected == ERROR:
        done = program.train(folder / "run", [*idx_flags(idx), *start, "--serial"])
        return error_problems("train", done, (start[1], name, dtype, "expected F32, F16 or BF16"))
    flags = [*idx_flags(idx), *start, "--init-partial", "true", "--serial"]
    done = program.train(folder / "run", flags)
    if done.code != 0:
        return [f"train --init: exit code {done.code}: {done.err.strip()}"]
    problems = missing_parts("train --init", done.err, (name, ))
    program.train(folder / "plain", [*idx_flags(idx), "--init", str(folder / "plain.safetensors"), "--serial"])
    return problems + accuracy_problems("without the tensor", Run(folder / "plain").accuracy,
                                        Run(folder / "run").accuracy)


def weights(random: Random, i: int) -> Variation:
    """Tensors of types that Pando does not know: unused, or needed."""
    kind = TYPES[i % len(TYPES)]
    expected = ERROR if i % 4 == 3 else TRAINS
    what = f"{'a needed' if expected == ERROR else 'an unused'} tensor of type {kind[0]}"
    variation = idx_variation(random, what, expected, lambda idx: None)
    variation.check = check_weights
    variation.facts["type"] = kind
    return variation


KINDS = {"folders read": folders_read, "folders refused": folders_refused, "gzip": gzips, "emnist": emnist,
         "weights": weights}
