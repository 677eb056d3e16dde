#!/usr/bin/python3
"""pytorch_models.py bits|speed [--network resnet18|vit] [--steps N] [--kills N] [--data FOLDER]

Models of PyTorch on Pando (docs/pytorch.md), with random augmentation and dropout.
  bits   one job with several numbers of workers and servers, loader processes and transports; then with
         `kill -9` from outside at random; then killed as a whole and resumed. Every hash is printed, and the exit
         status says whether they are equal.
  speed  one worker and one server beside a plain loop of PyTorch with torch.optim, alternately; images/s of each, the
         first steps left out, and the medians' ratio.
Runs the Python that runs this. --data: the folder of CIFAR-10's binary files; without it pictures are drawn.
"""
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from report import PANDO, ROOT, in_turns, make_parser

WARMUP_STEPS = 3
KILL_SECONDS = 3.0  # at least, between two kills
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "examples"), str(Path(__file__).resolve().parent / "peers")]
import processes  # noqa: E402


# ---- in the processes that train ----

def make_network(name):
    import torch
    import torchvision
    if name == "resnet18":
        return torchvision.models.resnet18(num_classes=10)
    from torch import nn
    layer = nn.TransformerEncoderLayer(64, 4, 128, 0.1, "gelu", batch_first=True, norm_first=True)

    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, 64, 8, stride=8)
            self.position = nn.Parameter(0.02 * torch.randn(1, 16, 64))
            self.blocks = nn.TransformerEncoder(layer, 3)
            self.head = nn.Linear(64, 10)

        def forward(self, x):
            return self.head(self.blocks(self.patches(x).flatten(2).transpose(1, 2) + self.position).mean(1))

    return ViT()


def make_pictures(data, pattern, count):
    import torch

    class Pictures(torch.utils.data.Dataset):
        """Pictures [3, 32, 32], shifted and mirrored at random, and their classes."""

        def __init__(self):
            files = sorted(Path(data).glob(pattern)) if data else []
            if files:
                records = torch.frombuffer(bytearray(b"".join(f.read_bytes() for f in files)), dtype=torch.uint8)
                records = records.view(-1, 3073)[:count]
                self.x, self.y = records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].long()
            else:
                generator = torch.Generator().manual_seed(1)
                self.x = torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
                self.y = torch.randint(10, (count,), generator=generator)

        def __len__(self):
            return len(self.y)

        def __getitem__(self, index):
            x = self.x[index].roll(torch.randint(-4, 5, (2,)).tolist(), (1, 2)) / 255 - 0.5
            return (x.flip(2) if torch.rand(()) < 0.5 else x), self.y[index]

    return Pictures()


def train_on_pando(args):
    import torch.nn.functional as F

    import pando_train as pando
    pando.seed(1)
    model = make_network(args.network)
    optimizer = pando.SGD(lr=0.02, momentum=0.9) if args.network == "resnet18" else pando.AdamW(lr=1e-3)
    run = pando.join(model, make_pictures(args.data, "data_batch_*", 20000), optimizer, schedule=pando.OneCycle(),
                     steps=args.steps, global_batch=args.batch, micro_batches=args.micro_batches)
    if args.evaluates:
        run.evaluate_with(make_pictures(args.data, "test_batch*", 512),
                          lambda x, y: dict(correct=(model(x).argmax(1) == y).sum()))
    for x, y in run.loader(num_workers=args.loader_workers):
        with run.micro_batch() as mb:
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            mb.log(loss=loss)


def train_plainly(args):
    """Prints images/s."""
    import torch
    import torch.nn.functional as F
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = make_network(args.network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    loader = torch.utils.data.DataLoader(make_pictures(args.data, "data_batch_*", 20000), args.batch, shuffle=True)
    begin = None
    for step, (x, y) in enumerate(loader):
        if step == WARMUP_STEPS:
            begin = time.perf_counter()
        if step == args.steps:
            break
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    print((args.steps - WARMUP_STEPS) * args.batch / (time.perf_counter() - begin))


# ---- in the process that starts them ----

def command(args, run_dir, flags, loader_workers=0):
    own = ["--network", args.network, "--steps", args.steps, "--batch", args.batch,
           "--micro-batches", args.micro_batches, "--loader-workers", loader_workers, "--data", args.data]
    own += ["--evaluates"] if args.evaluates else []
    return [str(word) for word in [PANDO, "run", "--run-dir", run_dir, *flags, sys.executable, __file__, "pando", *own]]


def find_children(pid):
    """Returns (process, role) of the processes of a run."""
    words = {child: processes.arguments(child) for child, parent in processes.parents().items() if parent == pid}
    return [(child, "worker" if __file__ in each else each[1]) for child, each in words.items() if len(each) > 1]


def kill_at_random(process, metrics, kills, draws):
    """Kills the run's processes, one at a time, from its first step on. Returns the killed ones."""
    killed = []
    while process.poll() is None and len(killed) < kills:
        if not metrics.exists() or metrics.read_text().count("\n") < 2:
            time.sleep(0.2)
            continue
        time.sleep(KILL_SECONDS + draws.random())
        children = find_children(process.pid)
        role = draws.choice(["worker", "server", "scheduler"])
        found = [pid for pid, name in children if name == role]
        if found and process.poll() is None:
            os.kill(draws.choice(found), signal.SIGKILL)
            killed.append(role)
    process.wait()
    return killed


def read_hash(run_dir):
    return json.loads((Path(run_dir) / "summary.json").read_text()).get("weights_hash", "")


def compare_bits(args, folder):
    hashes = set()
    for workers, servers, loader_workers, transport in [(1, 1, 0, "tcp"), (2, 2, 2, "shm"), (3, 2, 0, "shm"),
                                                        (2, 2, 0, "tcp"), (3, 2, 2, "tcp")]:
        run_dir = Path(folder) / f"{workers}-{servers}-{loader_workers}-{transport}"
        flags = ["--workers", workers, "--servers", servers, "--transport", transport]
        began = time.monotonic()
        subprocess.run(command(args, run_dir, flags, loader_workers), check=True, stderr=subprocess.DEVNULL)
        hashes.add(read_hash(run_dir))
        print(f"{workers} x {servers}, {loader_workers} loader processes, {transport}: {read_hash(run_dir)}, "
              f"{time.monotonic() - began:.0f} s", flush=True)
    draws = random.Random(args.seed)
    flags = ["--workers", 3, "--servers", 2, "--snapshot-every", 20, "--max-restarts", 1000]
    run_dir = Path(folder) / "killed"
    process = subprocess.Popen(command(args, run_dir, flags, 2), stderr=subprocess.DEVNULL)
    killed = kill_at_random(process, run_dir / "metrics.csv", args.kills, draws)
    hashes.add(read_hash(run_dir))
    print(f"{len(killed)} kills ({', '.join(killed)}): {read_hash(run_dir)}", flush=True)
    run_dir = Path(folder) / "resumed"
    process = subprocess.Popen(command(args, run_dir, flags, 2), stderr=subprocess.DEVNULL)
    metrics = run_dir / "metrics.csv"
    while process.poll() is None and (not metrics.exists() or metrics.read_text().count("\n") < args.steps // 2):
        time.sleep(0.2)
    children = find_children(process.pid)
    process.kill()
    process.wait()
    while not processes.parents().keys().isdisjoint(pid for pid, _ in children):
        time.sleep(0.1)
    resume = [PANDO, "resume", run_dir, "--workers", 2, "--servers", 1]
    subprocess.run([str(word) for word in resume], check=True, stderr=subprocess.DEVNULL)
    hashes.add(read_hash(run_dir))
    print(f"killed as a whole, resumed with 2 x 1: {read_hash(run_dir)}", flush=True)
    return 0 if len(hashes) == 1 and "" not in hashes else 1


def pando_speed(args, folder):
    with tempfile.TemporaryDirectory(dir=folder) as own:
        run_dir = Path(own) / "run"
        subprocess.run(command(args, run_dir, ["--workers", 1, "--servers", 1]), check=True, stderr=subprocess.DEVNULL)
        rows = [line.split(",") for line in (run_dir / "metrics.csv").read_text().splitlines()]
    at = rows[0].index("elapsed_seconds")
    steps = [float(row[at]) for row in rows[1:] if row[-1] == ""]
    return (len(steps) - WARMUP_STEPS) * args.batch / (steps[-1] - steps[WARMUP_STEPS - 1])


def torch_speed(args, _):
    own = ["--network", args.network, "--steps", args.steps, "--batch", args.batch, "--data", args.data]
    return float(subprocess.check_output([sys.executable, __file__, "torch", *map(str, own)], text=True))


SPEEDS = {"pando": pando_speed, "torch": torch_speed}


def compare_speed(args, folder):
    figures = in_turns(("pando", "torch"), args.pairs, lambda system: SPEEDS[system](args, folder))
    medians = {system: statistics.median(values) for system, values in figures.items()}
    print(f"{args.network}, batch {args.batch}, images/s, medians of {args.pairs}: pando {medians['pando']:.1f}, "
          f"torch {medians['torch']:.1f}, ratio {medians['pando'] / medians['torch']:.3f}")
    return 0


def main():
    parser = make_parser(__doc__, steps=60, batch=32, micro_batches=4, loader_workers=0, kills=20, pairs=5, seed=1,
                         data="", evaluates=False)
    parser.add_argument("what", choices=["bits", "speed", "pando", "torch"])
    parser.add_argument("--network", choices=["resnet18", "vit"], default="resnet18")
    args = parser.parse_args()
    if args.what in ("pando", "torch"):
        return train_on_pando(args) if args.what == "pando" else train_plainly(args)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if args.what == "speed":
            args.micro_batches = 1
        return compare_bits(args, folder) if args.what == "bits" else compare_speed(args, folder)


if __name__ == "__main__":
    sys.exit(main())
