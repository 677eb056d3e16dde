"""The compared systems: the start of each on a workload, and the places of its progress and its workers."""
import json
import os
import shutil
import socket
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, List, Optional, Tuple

import processes
import venvs
from progress import PandoLog, PeerLogs
from workloads import Workload, pando_flags, write_job

TRAINERS = Path(__file__).resolve().parent / "trainers"
RESTARTS_MAX = 100
LAYOUTS = ["default", "pictures", "channels_last"]  # channels_last for nothing, pictures only, weights too
HOST_NAMES = ["localhost", "127.0.0.1", "127.0.0.2", "127.0.0.3"]  # Horovod's unit of failure is a host


@dataclass(frozen=True)
class Place:
    """The folders and programs of this machine."""
    venvs: Path
    data: Path
    pando: str


@dataclass(frozen=True)
class Run:
    """One training of one system."""
    workload: Workload
    workers: int
    folder: Path
    is_elastic: bool = False  # workers may come and go: peers run in the form that supports it
    layout: str = "default"  # one of LAYOUTS: a peer's tensors in memory
    absent_workers: int = 0  # the part of `workers` that joins later

    def workers_at_start(self) -> int:
        return self.workers - self.absent_workers

    def samples(self, steps: int) -> int:
        return steps * self.workload.batch * self.workers


@dataclass(frozen=True)
class Command:
    words: List[str]
    environment: Dict[str, str]
    is_background: bool = False  # ends with the others


@dataclass(frozen=True)
class System:
    key: str
    title: str
    module: str = ""  # one of venvs.MODULES; empty: Pando's own networks
    more: Dict[str, object] = field(default_factory=dict)  # for the trainer's job, or for `pando train`
    gpus_min: int = 0
    workers_max: int = 0  # 0: any number
    needs_contiguous: bool = False  # gradients, and so weights: no channels_last

    def is_pando(self) -> bool:
        return self.module in ("", "pando-torch")

    def commands(self, run: Run, place: Place) -> List[Command]:
        shutil.rmtree(run.folder, ignore_errors=True)  # from an earlier call with --keep
        run.folder.mkdir(parents=True)
        if not self.module:
            return [pando_command(self, run, place)]
        job = write_peer_job(self, run, place)
        return LAUNCHERS[self.module](run, place, job)

    def log(self, run: Run):
        if self.is_pando():
            return PandoLog(run.folder / "run", run.samples(int(self.more.get("local_steps", 1))))
        return PeerLogs(run.folder)

    def worker_pids(self, run: Run) -> Dict[int, int]:
        """Returns the living processes that train, by rank or start."""
        alive = processes.below(os.getpid())
        if not self.is_pando():
            return {rank: pid for rank, pid in PeerLogs(run.folder).workers().items() if pid in alive}
        training = {path.name for path in run.folder.glob("batches-*") if path.stat().st_size}
        workers = sorted(pid for pid in alive
                         if f"batches-{pid}" in training or processes.arguments(pid)[1:2] == ["worker"])
        return dict(enumerate(workers))

    def result(self, run: Run) -> Tuple[int, int, dict]:
        """Returns (correct, tested) of the test set, and the first worker's memory by kind. Zeros: no end."""
        if self.is_pando():
            path = run.folder / "run/summary.json"
            evaluations = json.loads(path.read_text())["evaluations"] if path.exists() else []
            return (evaluations[-1]["correct"], evaluations[-1]["samples"], {}) if evaluations else (0, 0, {})
        parts = [json.loads(path.read_text()) for path in sorted(run.folder.glob("result-*.json"))]
        kinds = parts[0]["memory"] if parts else {}
        return sum(p["correct"] for p in parts), sum(p["tested"] for p in parts), kinds

    def batches_begun(self, run: Run) -> Optional[int]:
        """Counts all workers' batches, including repeated and lost ones; None: not known."""
        files = list(run.folder.glob("batches-*"))
        return sum(path.stat().st_size for path in files) if files else None

    def weights(self, run: Run) -> str:
        """Names the final weights of a run of Pando's; empty: it did not end, or is a peer's."""
        path = run.folder / "run/summary.json"
        return json.loads(path.read_text()).get("weights_hash", "") if path.exists() else ""

    def why_not(self, place: Place, gpus: int) -> Optional[str]:
        """Returns why it cannot run here; None if it can."""
        if gpus < self.gpus_min:
            return f"needs {self.gpus_min} GPUs, one for each worker; found {gpus}"
        if self.is_pando() and not Path(place.pando).exists():
            return f"{place.pando} is not there: build it, or name it by --pando"
        if not self.module:
            return None
        return None if venvs.version_of(place.venvs, self.module) else venvs.reason_of(place.venvs, self.module)


def pando_command(system: System, run: Run, place: Place) -> Command:
    flags = [str(word) for pair in system.more.items() for word in pair]
    words = [place.pando, "train", *pando_flags(run.workload, place.data, run.workers, run.workers_at_start()),
             "--run-dir", str(run.folder / "run"), "--threads", "1", "--max-restarts", str(RESTARTS_MAX), *flags]
    if "allreduce" in flags:
        words += ["--group-restarts", str(RESTARTS_MAX)]
    return Command(words, dict(os.environ))


def write_peer_job(system: System, run: Run, place: Place) -> Path:
    path = run.folder / "job.json"
    write_job(run.workload, path, folder=str(run.folder), data=str(run.workload.data_folder(place.data)),
              workers=run.workers, layout=run.layout, elastic=run.is_elastic, restarts_max=RESTARTS_MAX,
              **{"compiled": False, "plain": False, "device": "cpu", "zero_stage": 0, "local_steps": 1, **system.more})
    return path


def pando_torch(run: Run, place: Place, job: Path) -> List[Command]:
    """Returns `pando run`, which starts the trainer as each worker."""
    flags = {"--workers": run.workers_at_start(), "--servers": json.loads(job.read_text())["servers"],
             "--snapshot-every": run.workload.snapshot_every, "--max-restarts": RESTARTS_MAX,
             "--run-dir": run.folder / "run", "--set": "run.start_timeout_ms=300000"}
    environment = {**venvs.environment_of(place.venvs, venvs.TORCH), "PYTHONPATH": str(venvs.ROOT / "python"),
                   "PANDO_LIBRARY": str(Path(place.pando).parents[1] / "embed/libpando_worker.so")}
    words = [place.pando, "run", "--preload", *(str(word) for pair in flags.items() for word in pair), "--",
             str(venvs.python_of(place.venvs, venvs.TORCH)), str(TRAINERS / "pando_torch.py"), str(job)]
    return [Command(words, environment)]


def torchrun(run: Run, place: Place, script: str, job: Path, workers: int) -> List[str]:
    return [str(venvs.python_of(place.venvs, venvs.TORCH)), "-m", "torch.distributed.run", "--standalone",
            "--nproc-per-node", str(workers), "--max-restarts", str(RESTARTS_MAX if run.is_elastic else 0),
            "--monitor-interval", "0.1", str(TRAINERS / script), str(job)]


def in_a_group(run: Run, place: Place, script: str, job: Path) -> List[Command]:
    """Returns one torchrun for all workers. When it restarts them they get a new store: in the usual shared one gloo
    would find the addresses of dead workers, and would not connect."""
    environment = {**venvs.environment_of(place.venvs, venvs.TORCH), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    return [Command(torchrun(run, place, script, job, run.workers), environment)]


def ddp(run: Run, place: Place, job: Path) -> List[Command]:
    return in_a_group(run, place, "ddp.py", job)


def deepspeed(run: Run, place: Place, job: Path) -> List[Command]:
    return in_a_group(run, place, "deepspeed_zero.py", job)


def ray(run: Run, place: Place, job: Path) -> List[Command]:
    words = [str(venvs.python_of(place.venvs, venvs.TORCH)), str(TRAINERS / "ray_train.py"), str(job)]
    return [Command(words, venvs.environment_of(place.venvs, venvs.TORCH))]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def torchft(run: Run, place: Place, job: Path) -> List[Command]:
    """Returns a lighthouse, and a torchrun for each replica group. Silence counts as death after 1 s, as in Pando."""
    port = free_port()
    (run.folder / "lighthouse").write_text(f"http://127.0.0.1:{port}")
    words = [str(place.venvs / venvs.TORCH / "bin/torchft_lighthouse"), "--min_replicas", "1",
             "--quorum_tick_ms", "100", "--join_timeout_ms", "1000" if run.is_elastic else "60000",
             "--heartbeat_timeout_ms", "1000", "--bind", f"127.0.0.1:{port}"]
    lighthouse = Command(words, venvs.environment_of(place.venvs, venvs.TORCH), is_background=True)
    return [lighthouse, *(torchft_group(run, place, job, group) for group in range(run.workers_at_start()))]


def torchft_group(run: Run, place: Place, job: Path, group: int) -> Command:
    environment = {**venvs.environment_of(place.venvs, venvs.TORCH), "REPLICA_GROUP_ID": str(group),
                   "TORCHFT_LIGHTHOUSE": (run.folder / "lighthouse").read_text()}
    has_rounds = json.loads(job.read_text())["local_steps"] > 1
    return Command(torchrun(run, place, "torchft_diloco.py" if has_rounds else "torchft_ddp.py", job, 1), environment)


def horovod(run: Run, place: Place, job: Path) -> List[Command]:
    program = str(place.venvs / venvs.HOROVOD / "bin/horovodrun")
    script = [str(venvs.python_of(place.venvs, venvs.HOROVOD)), str(TRAINERS / "horovod_dp.py"), str(job)]
    hosts = ["-H", f"localhost:{run.workers}"]
    if run.is_elastic:
        write_hosts(run, run.workers_at_start())
        hosts = ["--min-np", "1", "--max-np", str(run.workers), "--host-discovery-script", discovery_script(run),
                 "--blacklist-cooldown-range", "1", "2",
                 "--network-interface", "lo"]  # without this it waits for two hosts before it begins
    words = [program, "-np", str(run.workers_at_start()), "--gloo", *hosts, *script]
    return [Command(words, venvs.environment_of(place.venvs, venvs.HOROVOD))]


def write_hosts(run: Run, count: int) -> None:
    """Writes the hosts that Horovod finds from now on."""
    path = run.folder / "hosts"
    path.with_suffix(".new").write_text("".join(f"{host}:1\n" for host in HOST_NAMES[:count]))
    path.with_suffix(".new").replace(path)


def discovery_script(run: Run) -> str:
    path = run.folder / "hosts.sh"
    path.write_text(f"#!/bin/sh\ncat '{run.folder / 'hosts'}'\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


LAUNCHERS = {"pando-torch": pando_torch, "ddp": ddp, "torchft": torchft, "ray": ray, "deepspeed": deepspeed,
             "horovod": horovod}

PANDO_CPU = {"--device": "cpu"}
SYSTEMS = [System("pando-ps", "Pando, 2 servers", more={**PANDO_CPU, "--servers": 2}),
           System("pando-ps1", "Pando, 1 server, 1 replica", more={**PANDO_CPU, "--servers": 1, "--replicas": 1}),
           System("pando-allreduce", "Pando, allreduce", more={**PANDO_CPU, "--strategy": "allreduce"}),
           System("pando-torch", "Pando, PyTorch, 2 servers", "pando-torch", {"servers": 2}),
           System("pando-torch1", "Pando, PyTorch, 1 server, 1 replica", "pando-torch", {"servers": 1}),
           System("torch", "PyTorch, one process", "ddp", {"plain": True}, workers_max=1),
           System("ddp", "PyTorch DDP, gloo", "ddp"), System("ddp-compiled", "PyTorch DDP, gloo, torch.compile", "ddp",
                                                             {"compiled": True}),
           System("ddp-nccl", "PyTorch DDP, NCCL", "ddp", {"device": "cuda"}, gpus_min=2),
           System("torchft", "torchft", "torchft"), System("ray", "Ray Train", "ray"),
           System("zero1", "DeepSpeed, ZeRO 1", "deepspeed", {"zero_stage": 1}, needs_contiguous=True),
           System("zero2", "DeepSpeed, ZeRO 2", "deepspeed", {"zero_stage": 2}, needs_contiguous=True),
           System("zero3", "DeepSpeed, ZeRO 3", "deepspeed", {"zero_stage": 3}, needs_contiguous=True),
           System("horovod", "Horovod, gloo", "horovod", needs_contiguous=True)]
