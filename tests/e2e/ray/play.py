"""Plays a run of pando_train.ray on a Ray cluster of two nodes on this machine (docs/clusters.md#ray).

    tests/e2e/ray/play.py job|loop [--speed ROUNDS] [--steps N]    with a Python that has `ray[train]` and torch

Ten actors are killed, a node is removed, and another one is added and drained. The weights must be those of `pando
train` (job) or `pando run` (loop), and no step may be lost. `--speed`: one node, no faults; images/s beside the same
run without Ray, in turns. PANDO_PROGRAM and PANDO_LIBRARY name the built files. Exit code 77: this Python has no Ray.
"""
import argparse
import importlib.util
import json
import os
import runpy
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Callable, Optional

SKIPPED = 77
DEADLINE_S = 600
STEPS_BETWEEN = 10  # from the recovery of one fault to the next one
KILLS = ["worker-0", "server-0", "scheduler-0", "worker-1", "server-1"] * 2
PROCESSES = ["--workers", "2", "--servers", "2"]
JOB = ["--model", "mnist-cnn", "--dataset", "synthetic-digits", "--set", "data.synthetic_train_samples=4000", "--set",
       "data.synthetic_test_samples=500", "--optimizer", "adam", "--set", "eval.every_epochs=0", *PROCESSES]
LOOP = """
import sys
import pando_train as pando, torch, torch.nn.functional as F

def train(steps):
    pando.seed(1)
    data = torch.utils.data.TensorDataset(torch.randn(2048, 1, 28, 28), torch.randint(10, (2048,)))
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 16, 5), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(),
                                torch.nn.Linear(2304, 10))
    run = pando.join(model, data, pando.SGD(lr=0.05, momentum=0.9), steps=steps, global_batch=256, micro_batches=4)
    for x, y in run.loader():
        with run.micro_batch() as mb:
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            mb.log(loss=loss)

if __name__ == "__main__":
    train(int(sys.argv[1]))
"""


def wait_until(is_done: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_done():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}"
        time.sleep(0.2)


class Play:
    """A cluster, and runs in it and without it."""

    def __init__(self, folder: Path, kind: str, steps: int, has_other_node: bool):
        import ray
        from ray.cluster_utils import Cluster
        from pando_train._launch import find_program
        self.ray, self.folder, self.kind, self.steps = ray, folder, kind, steps
        self.pando = find_program()
        self.driver = threading.Thread()
        (folder / "loop.py").write_text(LOOP)
        job = self.run_pando("train", *JOB, "--steps", str(steps), "--dry-run")
        (folder / "job.toml").write_text(job)
        cpu_count = 4 if has_other_node else 8
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": cpu_count, "include_dashboard": False})
        self.other = self.cluster.add_node(num_cpus=4) if has_other_node else None
        ray.init(address=self.cluster.address, log_to_driver=False)

    def run_pando(self, *words: Any) -> str:
        return subprocess.run([self.pando, *map(str, words)], stdout=subprocess.PIPE, text=True, check=True).stdout

    def run_alone(self, name: str) -> dict[str, Any]:
        """The same run without Ray."""
        run_dir = self.folder / name
        if self.kind == "job":
            self.run_pando("train", self.folder / "job.toml", "--run-dir", run_dir)
        else:
            self.run_pando("run", *PROCESSES, "--run-dir", run_dir, sys.executable, self.folder / "loop.py", self.steps)
        return json.loads((run_dir / "summary.json").read_text())

    def fit(self, name: str) -> dict[str, Any]:
        from ray.train import RunConfig, ScalingConfig
        from pando_train.ray import PandoTrainer
        loop, config = str(self.folder / "job.toml"), None
        if self.kind == "loop":
            loop, config = runpy.run_path(str(self.folder / "loop.py"))["train"], self.steps
        trainer = PandoTrainer(loop, train_loop_config=config, scaling_config=ScalingConfig(num_workers=2),
                               run_config=RunConfig(name=name, storage_path=str(self.folder)))
        return trainer.fit().metrics

    def status(self, name: str) -> dict[str, Any]:
        """Without nodes while the scheduler does not answer."""
        folder = self.folder / name
        try:
            endpoint = (folder / "run" / "endpoint").read_text().strip()
        except FileNotFoundError:
            return {"nodes": [], "step": 0}
        done = subprocess.run([self.pando, "status", "--join", endpoint, "--keys", folder / "keys", "--json"],
                              capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else {"nodes": [], "step": 0}

    def await_whole(self) -> int:
        """Waits until all processes are there and each shard has two replicas, and for some steps. Returns the step."""
        first: Optional[int] = None

        def is_done() -> bool:
            nonlocal first
            assert self.driver.is_alive(), "fit() has failed"
            status = self.status("play")
            ready = [node for node in status["nodes"] if node["health"] == "ready" and not node["draining"]]
            roles = [node["role"] for node in ready if not node.get("syncing")]
            if first is None and roles.count("server") == 2 and roles.count("worker") == 2:
                first = status["step"]
            return first is not None and status["step"] >= first + STEPS_BETWEEN
        wait_until(is_done, "the run is whole")
        return self.status("play")["step"]

    def kill(self, name: str) -> None:
        """Kills an actor. Its process must die with it."""
        step = self.await_whole()
        actor = self.ray.get_actor(f"play/{name}")
        process = self.ray.get(actor.__ray_call__.remote(lambda _: os.getpid()))
        child = self.ray.get(actor.__ray_call__.remote(lambda process: process._child.pid))
        os.kill(process, signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{child}").exists(), "the process dies with its actor")
        print(f"step {step}: {name} is killed", flush=True)

    def add_faults(self) -> None:
        for name in KILLS:
            self.kill(name)
        print(f"step {self.await_whole()}: a node is removed, and one is added", flush=True)
        self.cluster.remove_node(self.other, allow_graceful=False)
        self.other = self.cluster.add_node(num_cpus=4)
        print(f"step {self.await_whole()}: the run is whole; the new node is drained", flush=True)
        subprocess.run([Path(sys.executable).with_name("ray"), "drain-node", "--address", self.cluster.address,
                        "--node-id", self.other.node_id, "--reason", "DRAIN_NODE_REASON_PREEMPTION",
                        "--reason-message", "notice", "--deadline-remaining-seconds", "600"], check=True)
        wait_until(lambda: self.count_events("drained") > 0, "a process leaves the node")
        print(f"step {self.await_whole()}: the run is whole", flush=True)

    def count_events(self, name: str) -> int:
        lines = (self.folder / "play" / "run" / "events.jsonl").read_text().splitlines()
        return sum(json.loads(line)["event"] == name for line in lines)

    def play(self) -> int:
        results: list[dict[str, Any]] = []
        self.driver = threading.Thread(target=lambda: results.append(self.fit("play")), daemon=True)
        self.driver.start()
        self.add_faults()
        print("the faults are over; the run goes on to its end", flush=True)
        self.driver.join()
        assert results, "fit() has failed"
        metrics, alone = results[0], self.run_alone("alone")
        print(f"hash {metrics['weights_hash']}, without Ray {alone['weights_hash']}; {len(KILLS)} kills, "
              f"{metrics['rollbacks']} rollbacks, {self.count_events('drained')} processes drained", flush=True)
        return int(metrics["weights_hash"] != alone["weights_hash"] or metrics["rollbacks"] != 0)

    def compare_speed(self, rounds: int) -> int:
        ratios = []
        for i in range(rounds):
            alone = self.run_alone(f"alone-{i}")["images_per_second"]
            under_ray = self.fit(f"ray-{i}")["images_per_second"]
            ratios.append(under_ray / alone)
            print(f"images/s: {under_ray:.0f} under Ray, {alone:.0f} without: {ratios[-1]:.3f}", flush=True)
        print(f"ratio: median {statistics.median(ratios):.3f}, from {min(ratios):.3f} to {max(ratios):.3f}", flush=True)
        return 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["job", "loop"])
    parser.add_argument("--speed", type=int, metavar="ROUNDS")
    parser.add_argument("--steps", type=int, default=9000)
    options = parser.parse_args()
    if importlib.util.find_spec("ray") is None:
        print(f"SKIPPED: {sys.executable} has no Ray: pip install 'ray[train]' torch", file=sys.stderr)
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="pando-test-", ignore_cleanup_errors=True) as name:
        # A second node's own processes would be on another machine.
        play = Play(Path(name), options.kind, options.steps, has_other_node=not options.speed)
        try:
            return play.compare_speed(options.speed) if options.speed else play.play()
        finally:
            play.ray.shutdown()
            play.cluster.shutdown()


if __name__ == "__main__":
    sys.exit(main())
