"""PandoTrainer is a run whose processes are actors of a Ray cluster (docs/clusters.md#ray).

fit() runs in the driver. It starts an actor for each process of the run, and restarts only actors that die.
An actor starts its process as a child, which the kernel ends with the actor.
"""
import csv
import functools
import itertools
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from ._launch import ending_with_this_process, find_program
from .errors import PandoError, RunFailed

try:
    import pandas  # as ray.train does
    import ray
    from ray.train import Checkpoint, Result, RunConfig, ScalingConfig
    from ray.util.metrics import Gauge
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy
except ImportError as missing:
    raise ImportError(f"pando_train.ray needs Ray ({missing}): run `pip install 'ray[train]'`") from missing

POLL_S = 1.0  # the time between looks at draining nodes and at the progress
DEATHS_MAX = 30  # per process within a minute
CLOSE_TIMEOUT_S = 10
START_TIMEOUT_MS = 86_400_000  # an autoscaler may need long for the first nodes
COMPLETED, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130  # exit codes of the program pando
GAUGES = {"step": "Completed steps", "loss": "Loss of the step", "images_per_second": "Samples per second"}
say = functools.partial(print, "pando:", file=sys.stderr, flush=True)
# `-c` would first search the current folder, which others may be able to write.
RUN_LOOP = ("import sys; sys.path[:] = filter(None, sys.path); import ctypes, os, pickle\n"
            "ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL: the kernel ends it with the actor\n"
            "if os.getppid() != int(os.environ.pop('PANDO_ENDS_WITH')): sys.exit('the actor has ended')\n"
            "with open(int(sys.argv[1]), 'rb') as file: loop = pickle.load(file)\n"
            "loop()")


@dataclass(frozen=True)
class Spec:
    """How an actor starts its process."""
    role: str
    arguments: Tuple[str, ...]  # of the program pando; none: the process runs the loop
    first_arguments: Tuple[str, ...] = ()  # further ones at the first start
    keys: Dict[str, bytes] = field(default_factory=dict)  # the files of the keys folder, by name
    endpoint: str = ""
    loop: bytes = b""  # the pickled loop


class Process:
    """The actor of one process of the run. A second thread answers while run() waits."""

    def __init__(self, name: str, folder_name: str):
        self._name = name
        self._prefix = f"{folder_name}-{name}-"
        self._child: Optional[subprocess.Popen] = None

    def __repr__(self) -> str:
        return self._name

    def node(self) -> str:
        """Returns the id of the actor's Ray node."""
        return ray.get_runtime_context().get_node_id()

    def run(self, spec: Spec) -> int:
        """Runs the process to its end. Returns its exit code, or minus the signal that ended it."""
        self._child = None
        with tempfile.TemporaryDirectory(prefix=self._prefix) as folder, tempfile.TemporaryFile() as loop:
            for old in Path(folder).parent.glob(f"{self._prefix}*"):  # remains of a killed actor
                if old != Path(folder):
                    shutil.rmtree(old, ignore_errors=True)
            for name, content in spec.keys.items():
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                with open(os.open(Path(folder, name), flags, 0o600), "wb") as file:
                    file.write(content)
            loop.write(spec.loop)
            loop.seek(0)
            command = [find_program(), *spec.arguments, *spec.first_arguments]
            if not spec.arguments:  # the loop is in a file without a name
                command = [sys.executable, "-c", RUN_LOOP, str(loop.fileno())]
            elif spec.role == "server":  # the replicas of a shard must be on two nodes
                command += ["--label", f"host={self.node()}"]
            environment = {**ending_with_this_process(), "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                           "PANDO_SCHEDULER": spec.endpoint, "PANDO_RANK": "", "PANDO_KEYS": folder}
            self._child = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL,
                                           pass_fds=() if spec.arguments else (loop.fileno(),))
            return self._child.wait()

    def send(self, number: int) -> None:
        """Sends a signal to the process, as soon as it has started. Does nothing after its end."""
        while self._child is None:
            time.sleep(POLL_S / 10)
        self._child.send_signal(number)


@dataclass(eq=False)
class Member:
    """A process of the run, and its current actor."""
    name: str
    spec: Spec
    resources: Dict[str, float]
    place: Any  # Ray's scheduling strategy
    actor: Any = None
    node: Any = None  # reference to the id of the actor's node, ready once the actor has started
    end: Any = None  # reference to the process's exit code; None: not started
    start_at: float = 0.0
    is_leaving: bool = False
    deaths: List[float] = field(default_factory=list)  # the times of deaths in the last minute

    def find_node(self) -> Optional[str]:
        """Returns the id of its actor's node. None: the actor has not started, or is lost."""
        try:
            return ray.get(self.node) if self.end is not None and ray.wait([self.node], timeout=0)[0] else None
        except ray.exceptions.RayActorError:
            return None

    def read_end(self) -> Optional[int]:
        """Waits for the exit code. None: the actor is lost. Raises PandoError if the process could not be started."""
        try:
            return ray.get(self.end)
        except ray.exceptions.RayTaskError as error:
            raise PandoError(f"{self.name} cannot be started: {error.cause}") from error
        except ray.exceptions.RayActorError:
            ray.kill(self.actor)
            self.actor = None
            return None


class Run:
    """The actors of one run, from its start to its end. Threads: only the driver's thread."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._folder_name = f"pando-{secrets.token_hex(8)}"  # the names of the actors' folders begin with it
        self._members: List[Member] = []  # the scheduler is the first one
        self._groups: List[Any] = []
        self._counts: Dict[str, int] = {}  # the highest number so far, by role
        self._gauges = {column: Gauge(f"pando_{column}", text, tag_keys=("run",)) for column, text in GAUGES.items()}

    def add(self, spec: Spec, resources: Dict[str, float], place: Any = None) -> None:
        """Adds a process. Without `place` it gets its own placement group, as soon as the cluster has room."""
        number = self._counts[spec.role] = self._counts.get(spec.role, -1) + 1
        place = place or PlacementGroupSchedulingStrategy(self.add_group([resources]))
        self._members.append(Member(f"{spec.role}-{number}", spec, resources, place))

    def add_group(self, bundles: List[Dict[str, float]]) -> Any:
        self._groups.append(placement_group(bundles, strategy="SPREAD"))
        return self._groups[-1]

    def watch(self) -> int:
        """Keeps the processes running until the scheduler ends, and returns its exit code."""
        while True:
            for member in self._members:
                if member.end is None and time.monotonic() >= member.start_at:
                    self._start(member)
            members = {member.end: member for member in self._members if member.end is not None}
            for member in map(members.get, ray.wait(list(members), timeout=POLL_S)[0]):
                code = member.read_end()
                if member is self._members[0] and code in (COMPLETED, FAILED, INTERRUPTED):
                    if code == COMPLETED:
                        self._await_loops()
                    return code
                self._note_end(member, code)
            self._leave_draining_nodes()
            row = read_last_row(self._folder / "run" / "metrics.csv")
            for column in self._gauges.keys() & row.keys():
                if row[column]:  # a loop need not log its loss
                    self._gauges[column].set(float(row[column]), {"run": self._folder.name})

    def _await_loops(self) -> None:
        """Waits until the loops have returned. Raises PandoError if a loop fails after the end of the run."""
        for member in [member for member in self._members if not member.spec.arguments and member.find_node()]:
            if member.read_end() != COMPLETED:
                raise PandoError(f"{member.name} failed after the end of the run in {self._folder}, which has the "
                                 "final weights: its messages are above")

    def close(self) -> None:
        """Ends all actors and their processes."""
        started = [member for member in self._members if member.actor and member.find_node()]
        for member in started:
            member.actor.send.remote(signal.SIGKILL)
        ray.wait([member.end for member in started], num_returns=max(len(started), 1), timeout=CLOSE_TIMEOUT_S)
        for actor in filter(None, (member.actor for member in self._members)):
            ray.kill(actor)
        for group in self._groups:
            remove_placement_group(group)

    def _start(self, member: Member) -> None:
        if member.actor is None:
            actor = ray.remote(Process).options(name=f"{self._folder.name}/{member.name}", max_concurrency=2,
                                                scheduling_strategy=member.place, **actor_options(member.resources))
            try:
                member.actor = actor.remote(member.name, self._folder_name)
            except ValueError:  # the dead actor still has the name
                member.start_at = time.monotonic() + POLL_S
                return
        member.node = member.actor.node.remote()
        member.end = member.actor.run.remote(member.spec)
        if member.spec.first_arguments:  # a scheduler that died alone continues with the remaining members
            job = str(self._folder / "run" / "job.toml")  # this job file has the model of a program
            member.spec = replace(member.spec, arguments=(*member.spec.arguments, job), first_arguments=())

    def _note_end(self, member: Member, code: Optional[int]) -> None:
        reason = "its actor is lost" if code is None else f"exit code {code}" if code >= 0 else f"signal {-code}"
        if code == COMPLETED or member.is_leaving:
            say(f"{member.name} has left the run")
            self._members.remove(member)
            return
        now = time.monotonic()
        member.deaths = [death for death in member.deaths if death > now - 60] + [now]
        if code == BAD_INPUT or len(member.deaths) > DEATHS_MAX:
            raise PandoError(f"{member.name} died {len(member.deaths)} times in a minute, the last time with {reason}: "
                             "its messages are above")
        member.end, member.start_at = None, now + (0 if code is None else POLL_S)
        say(f"{member.name} has ended ({reason}), and is started again")

    def _leave_draining_nodes(self) -> None:
        """Moves the processes of nodes that Ray drains. Other processes take over their work first."""
        # Ray Train uses the same function, because no public one names these nodes.
        draining = ray._private.state.state.get_draining_nodes()
        for member in [member for member in self._members[1:] if draining and not member.is_leaving]:
            if member.find_node() in draining:
                say(f"{member.name} leaves a node that Ray drains")
                member.is_leaving = True
                self.add(member.spec, member.resources)
                member.actor.send.remote(signal.SIGTERM)


class PandoTrainer:
    """Trains on a Ray cluster. Any process may die; the final weights are those of a run without faults."""

    def __init__(self, train_loop: Union[Callable[..., Any], str, os.PathLike], *,
                 train_loop_config: Optional[Dict[str, Any]] = None, scaling_config: Optional[ScalingConfig] = None,
                 run_config: Optional[RunConfig] = None, num_servers: int = 2,
                 resources_per_server: Optional[Dict[str, float]] = None, settings: Optional[Dict[str, Any]] = None):
        """`train_loop`: a function that calls pando.join and trains (docs/pytorch.md), or the path of a job file.

        A function gets `train_loop_config`, if given. With `num_workers=(2, 8)` the run starts with 2 workers and takes
        up to 8 while the cluster has room. `settings`: keys of the job file, such as {"snapshot.every": 100}.
        """
        self._job = find_job(train_loop, train_loop_config)
        self._loop = b"" if self._job else pickle_loop(train_loop, train_loop_config)
        self._worker_resources, self._workers = read_scaling(scaling_config or ScalingConfig())
        self._server_resources = resources_per_server or {"CPU": 1}
        self._server_count = check_count("num_servers", num_servers)
        self._run_config = run_config or RunConfig()
        self._settings = {"run.start_timeout_ms": START_TIMEOUT_MS, **(settings or {})}

    def fit(self) -> Result:
        """Trains to the end. Raises RunFailed if the run fails more than max_failures times.

        A fit() with the name and storage path of a run that has not ended continues it.
        """
        folder = make_folder(self._run_config)
        keys = make_keys(folder / "keys")
        if not ray.is_initialized():
            ray.init()
        for failures in itertools.count():
            code = self._run_once(folder, keys)
            if code == COMPLETED:
                return make_result(folder)
            if code == INTERRUPTED:
                raise PandoError(f"the run in {folder} was stopped: fit() with this name and storage_path continues it")
            cause = json.loads((folder / "run" / "summary.json").read_text())["failure"]
            if failures == self._run_config.failure_config.max_failures:  # negative: no limit
                raise RunFailed(cause)
            say(f"the run continues from its last snapshot, after a failure: {cause}")

    def _run_once(self, folder: Path, keys: Dict[str, bytes]) -> int:
        """Runs the processes once. Returns the scheduler's exit code."""
        run = Run(folder)
        try:
            self._add_processes(run, folder, keys)
            return run.watch()
        except KeyboardInterrupt:
            subprocess.run([find_program(), "stop", folder / "run", "--keys", folder / "keys"], check=False)
            raise
        finally:
            run.close()

    def _add_processes(self, run: Run, folder: Path, keys: Dict[str, bytes]) -> None:
        endpoint = choose_endpoint()
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)  # has the folder
        run.add(self._make_scheduler(folder / "run", endpoint), {}, here)
        servers = run.add_group([self._server_resources] * self._server_count)
        while not servers.wait(10):
            say(f"waiting for nodes with room for {self._server_count} servers of {self._server_resources}")
        for i in range(self._server_count):
            run.add(Spec("server", ("server", "--join", endpoint), keys=keys), self._server_resources,
                    PlacementGroupSchedulingStrategy(servers, placement_group_bundle_index=i))
        arguments = ("worker", "--join", endpoint) if self._job else ()
        for _ in range(self._workers[1]):
            run.add(Spec("worker", arguments, (), keys, endpoint, self._loop), self._worker_resources)

    def _make_scheduler(self, run_dir: Path, endpoint: str) -> Spec:
        words = ["scheduler", "--bind", endpoint, "--keys", str(run_dir.with_name("keys")), "--run-dir", str(run_dir),
                 "--workers", str(self._workers[0]), "--servers", str(self._server_count)]
        words += [f"--set={key}={json.dumps(value).strip(chr(34))}" for key, value in self._settings.items()]
        first = (str(self._job),) if self._job else ("--model", "external", "--dataset", "external")
        if (run_dir / "scheduler.db").exists():  # all processes of an earlier fit() are gone
            first = (str(self._job or run_dir / "job.toml"), "--resume")
        return Spec("scheduler", tuple(words), first)


def actor_options(bundle: Dict[str, float]) -> Dict[str, Any]:
    """Returns the options of an actor that uses the whole bundle."""
    return {"num_cpus": bundle.get("CPU", 0), "num_gpus": bundle.get("GPU", 0), "memory": bundle.get("memory"),
            "resources": {key: value for key, value in bundle.items() if key not in ("CPU", "GPU", "memory")}}


def check_count(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise PandoError(f"{name} is {value!r}: give a whole number from 1 on")
    return value


def read_scaling(scaling: Any) -> Tuple[Dict[str, float], Tuple[int, int]]:
    """Returns a worker's resources, and the least and the largest number of workers."""
    if not isinstance(scaling, ScalingConfig):
        raise PandoError(f"scaling_config is a {type(scaling).__name__}: pass a ray.train.ScalingConfig")
    low, high = scaling.num_workers if isinstance(scaling.num_workers, tuple) else (scaling.num_workers,) * 2
    check_count("num_workers of ScalingConfig", low)
    bundle = dict(scaling.resources_per_worker or ({"GPU": 1} if scaling.use_gpu else {"CPU": 1}))
    if scaling.accelerator_type:
        bundle[f"accelerator_type:{scaling.accelerator_type}"] = 0.001
    return bundle, (low, high)


def find_job(train_loop: Any, config: Any) -> Optional[Path]:
    """Returns the job file, or None for a function."""
    if callable(train_loop):
        return None
    if not isinstance(train_loop, (str, os.PathLike)) or not Path(train_loop).is_file():
        raise PandoError(f"train_loop is {train_loop!r}: pass a function that calls pando.join and trains, or the path "
                         "of a job file (`pando train ... --dry-run > job.toml` writes one)")
    if config is not None:
        raise PandoError("train_loop_config is for a function, and train_loop is a job file: use settings=")
    return Path(train_loop).resolve()


def pickle_loop(train_loop: Callable[..., Any], config: Any) -> bytes:
    try:
        return ray.cloudpickle.dumps(train_loop if config is None else functools.partial(train_loop, config))
    except Exception as error:
        raise PandoError(f"train_loop cannot be sent to the workers ({error}): build the model, and open files and "
                         "connections, inside the function") from error


def make_folder(config: RunConfig) -> Path:
    storage = str(config.storage_path)
    if "://" in storage or config.storage_filesystem is not None:
        raise PandoError(f"storage_path is {storage}: give RunConfig the path of a local or mounted folder")
    folder = Path(storage).expanduser().resolve() / config.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise PandoError(f"cannot write to {folder} ({error.strerror}): give RunConfig another storage_path") from error
    return folder


def make_keys(folder: Path) -> Dict[str, bytes]:
    """Makes the run's keys, if there are none yet. Returns the key files of servers and workers."""
    if not folder.exists():
        subprocess.run([find_program(), "keys", "new", folder], stdout=subprocess.DEVNULL, check=True)
    return {name: (folder / name).read_bytes() for name in ("member.key", "admin.pub")}


def choose_endpoint() -> str:
    """Returns an address of this node with two free ports: one for the scheduler, the next for snapshots."""
    host = ray.util.get_node_ip_address()
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind((host, 0))
            port = first.getsockname()[1]
            if port < 65535 and second.connect_ex((host, port + 1)) != 0:
                return f"tcp://{host}:{port}"


def read_last_row(path: Path) -> Dict[str, str]:
    """Returns the newest step's row in metrics.csv; an empty one before the first step."""
    with open(path if path.exists() else os.devnull, "rb") as file:
        names = file.readline().decode()
        first = file.tell()
        start = file.seek(max(first, file.seek(0, os.SEEK_END) - 4096))
        lines = file.read().decode().split("\n")[-2::-1]
    if start > first:
        lines.pop()  # only a part of a row
    return next((row for row in csv.DictReader([names, *lines]) if row["lr"]), {})


def make_result(folder: Path) -> Result:
    """Makes Ray's Result. The checkpoint has the weights as final.safetensors."""
    summary = json.loads((folder / "run" / "summary.json").read_text())
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir(exist_ok=True)
    shutil.copyfile(folder / "run" / "final.safetensors", checkpoint / "final.safetensors")
    metrics = {key: value for key, value in summary.items() if isinstance(value, (int, float, str))}
    return Result(metrics=metrics, checkpoint=Checkpoint.from_directory(checkpoint), error=None, path=str(folder),
                  metrics_dataframe=pandas.read_csv(folder / "run" / "metrics.csv"))
