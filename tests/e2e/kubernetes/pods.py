"""Plays the pods of deploy/kubernetes in namespaces of this machine (docs/clusters.md).

    tests/e2e/kubernetes/pods.py --pando PROGRAM

A pod has a network, address, process tree, root and volumes. Its commands, variables, mounts, probes, user and grace
period are those of the manifests. All pods restart one by one, a node with three of them is lost, and the number of
workers goes up and down. Then the run is stopped: its weights must be those of a serial run of as many steps. Exit
code 77: not possible on this machine.
"""
import argparse
import csv
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

SKIPPED = 77
DEADLINE_S = 60
STEPS_BETWEEN = 15  # from the recovery of one fault to the next one
DEPLOY = Path(__file__).resolve().parents[3] / "deploy/kubernetes"
JOB = ["--model", "mnist-cnn", "--dataset", "synthetic-digits", "--set", "data.synthetic_train_samples=2000", "--set",
       "data.synthetic_test_samples=500", "--global-batch", "128", "--optimizer", "adam", "--set",
       "eval.every_epochs=0", "--snapshot-every", "25", "--set", "run.lease_ms=3000", "--steps", "1000000"]
RUN_DIR = "/var/lib/pando/run"  # in the scheduler's pod
SCHEDULER, SERVER, WORKER = "pando-scheduler", "pando-server", "pando-worker"
ZONES = {"node-a": "zone-1", "node-b": "zone-1", "node-c": "zone-2", "node-d": "zone-2"}


def skip(reason: str) -> None:
    print(f"SKIPPED: {reason}", file=sys.stderr)
    sys.exit(SKIPPED)


try:
    from manifests import Manifests, container_variables, expand, image_variables
except ImportError as missing:
    skip(f"{missing}: install python3-yaml")


def run(*words: Any) -> str:
    return subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, text=True, check=True).stdout


@dataclass
class Pod:
    name: str
    workload: str
    node: str
    address: str
    cable: str
    spec: dict[str, Any]
    folder: Path
    variables: dict[str, str]
    log: Path
    process: Any = None
    first_process: int = 0  # of the container, as this program numbers it

    @property
    def container(self) -> dict[str, Any]:
        return self.spec["containers"][0]


class Cluster:
    """Pods on nodes, and what Kubernetes does with them."""

    def __init__(self, folder: Path, manifests: Manifests, pando: str):
        self.folder, self.manifests, self.pando = folder, manifests, pando
        self.image = image_variables(DEPLOY / "Dockerfile")
        self.pods: dict[str, Pod] = {}
        self.started_count = 0
        self.hosts = folder / "hosts"
        self.hosts.touch()
        self.run_dir = folder / f"claims/run-{SCHEDULER}-0/run"
        run("ip", "link", "add", "switch", "type", "bridge")
        run("ip", "link", "set", "switch", "up")

    # ---- inside a pod --------------------------------------------------------------------------

    def make_volumes(self, pod: Pod) -> dict[str, Path]:
        volumes = {volume["name"]: pod.folder / volume["name"] for volume in pod.spec["volumes"]}
        for claim in self.manifests.workloads[pod.workload].get("volumeClaimTemplates", []):
            volumes[claim["metadata"]["name"]] = self.folder / f"claims/{claim['metadata']['name']}-{pod.name}"
        for path in volumes.values():
            path.mkdir(parents=True, exist_ok=True)
            os.chown(path, 0, pod.spec["securityContext"]["fsGroup"])
            path.chmod(0o2775)
        for volume in pod.spec["volumes"]:
            source = volume.get("secret", {}).get("secretName") or volume.get("configMap", {}).get("name")
            for name, content in self.manifests.files.get(source, {}).items():
                (volumes[volume["name"]] / name).write_bytes(content)
        return volumes

    def as_user(self, pod: Pod, command: list[str]) -> list[str]:
        user = pod.spec["securityContext"]
        return ["setpriv", f"--reuid={user['runAsUser']}", f"--regid={user['runAsGroup']}",
                f"--groups={user['fsGroup']}", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", "env", "-i",
                *(f"{name}={value}" for name, value in pod.variables.items()), *command]

    def container_script(self, pod: Pod, container: dict[str, Any], volumes: dict[str, Path]) -> str:
        """Makes a root of this machine's programs, and becomes the container's process 1 there."""
        root = pod.folder / f"root-{container['name']}"
        lines = [f"mkdir {root}; mount -t tmpfs -o mode=755 root {root}; cd {root}",
                 "mkdir -p usr etc dev proc opt/pando/bin; ln -s usr/bin usr/sbin usr/lib usr/lib64 .",
                 "for i in usr etc dev; do mount --rbind /$i $i; done; mount -t proc proc proc",
                 f"touch opt/pando/bin/pando; mount --bind {shlex.quote(self.pando)} opt/pando/bin/pando",
                 f"mount --bind {self.hosts} etc/hosts"]
        for mount in container["volumeMounts"]:
            flags = "-o ro" if mount.get("readOnly") else ""
            lines.append(f"mkdir -p .{mount['mountPath']}; "
                         f"mount --bind {flags} {volumes[mount['name']]} .{mount['mountPath']}")
        if container["securityContext"]["readOnlyRootFilesystem"]:
            lines.append("mount -o remount,ro .")
        command = self.as_user(pod, [expand(word, pod.variables) for word in container["command"]])
        lines.append(f"touch {pod.folder}/started-{container['name']}; exec chroot . {shlex.join(command)} </dev/null")
        return "\n".join(lines)

    def pod_script(self, pod: Pod) -> str:
        volumes = self.make_volumes(pod)
        lines = ["read -r plugged_in", f"hostname {pod.name}"]
        options = f"mode=2775,gid={pod.spec['securityContext']['fsGroup']}"
        lines += [f"mount -t tmpfs -o {options} memory {volumes[volume['name']]}"
                  for volume in pod.spec["volumes"] if volume.get("emptyDir", {}).get("medium") == "Memory"]
        *first, last = [f"unshare --mount --pid --fork sh -ec {shlex.quote(self.container_script(pod, each, volumes))}"
                        for each in pod.spec["initContainers"] + pod.spec["containers"]]
        return "\n".join([*lines, *first, "exec " + last])

    # ---- its life ------------------------------------------------------------------------------

    def start(self, workload: str, name: str, node: str) -> Pod:
        """At an address that no pod had before."""
        self.started_count += 1
        unique = f"{name}-{self.started_count}"
        spec = self.manifests.workloads[workload]["template"]["spec"]
        fields = {"spec.nodeName": node, "metadata.labels['topology.kubernetes.io/zone']": ZONES[node]}
        variables = self.image | {"HOSTNAME": name} | container_variables(spec["containers"][0], fields)
        pod = Pod(name, workload, node, f"10.244.0.{self.started_count}", f"cable{self.started_count}", spec,
                  self.folder / unique, variables, self.folder / f"{unique}.log")
        with pod.log.open("wb") as log:
            pod.process = subprocess.Popen(["unshare", "--net", "--uts", "--ipc", "--mount", "sh", "-ec",
                                            self.pod_script(pod)], stdin=subprocess.PIPE, stdout=log, stderr=log)
        self.pods[name] = pod
        process = Path(f"/proc/{pod.process.pid}")
        self.wait(lambda: os.readlink(process / "ns/net") != os.readlink("/proc/self/ns/net"), f"{name} has a network")
        run("ip", "link", "add", pod.cable, "type", "veth", "peer", "name", "eth0", "netns", pod.process.pid)
        run("ip", "link", "set", pod.cable, "master", "switch", "up")
        run("nsenter", f"--net={process}/ns/net", "sh", "-ec",
            f"ip link set lo up; ip addr add {pod.address}/24 dev eth0; ip link set eth0 up")
        self.write_names()
        pod.process.stdin.write(b"\n")
        pod.process.stdin.close()
        self.wait((pod.folder / f"started-{pod.container['name']}").exists, f"{name} starts")
        pod.first_process = int((process / f"task/{pod.process.pid}/children").read_text())
        self.say(f"{name} starts on {node} at {pod.address}")
        return pod

    def write_names(self) -> None:
        """In place, since the file is mounted in each pod."""
        names = "".join(f"{pod.address} {pod.name}.pando\n" for pod in self.pods.values())
        self.hosts.write_text("127.0.0.1 localhost\n" + names)

    def execute(self, pod: Pod, command: list[str]) -> subprocess.CompletedProcess:
        """As kubectl exec and probes do."""
        inside = ["nsenter", f"--target={pod.first_process}", "--mount", "--uts", "--ipc", "--net", "--pid", "--root"]
        return subprocess.run(inside + self.as_user(pod, command), capture_output=True, text=True, check=False)

    def passes(self, pod: Pod, probe: dict[str, Any]) -> bool:
        return self.execute(pod, probe["exec"]["command"]).returncode == 0

    def await_ready(self, pod: Pod) -> None:
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            if probe := pod.container.get(name):
                self.wait(lambda: self.passes(pod, probe), f"{pod.name} passes its {name}")

    def terminate(self, *pods: Pod) -> None:
        """All at once: SIGTERM, and SIGKILL after the grace period, which only the scheduler needs."""
        since = time.monotonic()
        for pod in pods:
            os.kill(pod.first_process, signal.SIGTERM)
        for pod in pods:
            grace_s = pod.spec["terminationGracePeriodSeconds"]
            try:
                end = f"ends with {pod.process.wait(max(since + grace_s - time.monotonic(), 0))}"
            except subprocess.TimeoutExpired:
                end = "is killed"
            self.say(f"{pod.name} {end}, {time.monotonic() - since:.1f} s after SIGTERM, of {grace_s} s")
            if end != ("is killed" if pod.workload == SCHEDULER else "ends with 0"):
                self.fail(f"{pod.name} {end}", pod)
            self.remove(pod)

    def lose(self, node: str) -> list[Pod]:
        """It is silent first. Its pods are gone with what they stored."""
        lost = [pod for pod in self.pods.values() if pod.node == node]
        for pod in lost:
            run("ip", "link", "set", pod.cable, "down")
        for pod in lost:
            self.remove(pod)
        self.say(f"{node} is lost, with {', '.join(pod.name for pod in lost)}")
        return lost

    def remove(self, pod: Pod) -> None:
        if pod.process.poll() is None:
            os.kill(pod.first_process, signal.SIGKILL)
        pod.process.wait()
        del self.pods[pod.name]
        self.write_names()
        shutil.rmtree(pod.folder)

    # ---- the run -------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        print(f"step {self.steps():4}: {text}", flush=True)

    def fail(self, text: str, pod: Pod) -> None:
        raise AssertionError(f"{text}; its log ends with:\n{pod.log.read_text(errors='replace')[-3000:]}")

    def wait(self, is_done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not is_done():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {DEADLINE_S} s: {what}")
            for pod in self.pods.values():
                if pod.process.poll() is not None:
                    self.fail(f"{pod.name} has exited with {pod.process.returncode}", pod)
            time.sleep(0.02)

    def steps(self) -> int:
        """Those that the scheduler has heard of."""
        try:
            with (self.run_dir / "metrics.csv").open() as rows:
                return sum(row["loss"] != "" for row in csv.DictReader(rows))
        except FileNotFoundError:
            return 0

    def train_on(self) -> None:
        """Some steps, and a snapshot at the scheduler."""
        steps, snapshots = self.steps() + STEPS_BETWEEN, self.events("snapshot") + 1
        self.wait(lambda: self.steps() >= steps and self.events("snapshot") >= snapshots, f"step {steps}, a snapshot")

    def events(self, name: str) -> int:
        lines = (self.run_dir / "events.jsonl").read_text().splitlines(keepends=True)
        return sum(line.endswith("\n") and json.loads(line)["event"] == name for line in lines)


def play(cluster: Cluster) -> None:
    worker_count = 0

    def add_worker(node: str) -> Pod:
        nonlocal worker_count
        worker_count += 1
        return cluster.start(WORKER, f"{WORKER}-{worker_count}", node)

    def replace(pod: Pod, node: str) -> None:
        new = add_worker(node) if pod.workload == WORKER else cluster.start(pod.workload, pod.name, node)
        cluster.await_ready(new)

    # The scheduler is the last one: nothing has the name yet that the others ask for.
    for node in ("node-b", "node-c"):
        add_worker(node)
    for i, node in enumerate(("node-b", "node-c", "node-c")):
        cluster.start(SERVER, f"{SERVER}-{i}", node)
    cluster.start(SCHEDULER, f"{SCHEDULER}-0", "node-a")
    for pod in cluster.pods.values():
        cluster.await_ready(pod)
    cluster.train_on()

    for pod in list(cluster.pods.values()):
        cluster.terminate(pod)
        replace(pod, pod.node)
        cluster.train_on()
    assert cluster.events("scheduler-restarted") == 1 and cluster.events("dead") == 0, "a pod has not been drained"

    # Two of the servers are on it. No shard had both replicas there.
    for pod in cluster.lose("node-c"):
        replace(pod, "node-d")
    cluster.train_on()

    ready_count = cluster.events("ready")
    for node in ("node-a", "node-b"):
        add_worker(node)
    cluster.wait(lambda: cluster.events("ready") >= ready_count + 2, "two more workers")
    cluster.train_on()
    cluster.terminate(*[pod for pod in cluster.pods.values() if pod.workload == WORKER][1:])
    cluster.train_on()
    assert cluster.events("rollback") == 0, "the run went back to a snapshot"


def stop(cluster: Cluster) -> tuple[str, str]:
    """Returns the completed steps and the weights' hash, of files in the scheduler's pod, which stays."""
    scheduler = cluster.pods[f"{SCHEDULER}-0"]
    stopped = cluster.execute(scheduler, ["pando", "stop", RUN_DIR])
    assert stopped.returncode == 0, stopped.stderr
    for pod in [pod for pod in cluster.pods.values() if pod is not scheduler]:
        if pod.process.wait(DEADLINE_S) != 0:
            cluster.fail(f"{pod.name} has not left the run", pod)
        cluster.remove(pod)
    cluster.await_ready(scheduler)
    exported = cluster.execute(scheduler, ["pando", "export", RUN_DIR, "/tmp/weights.safetensors"])
    found = re.search(r"after (\d+) steps, weights_hash (\w+)", exported.stdout)
    assert found, exported.stderr
    return found[1], found[2]


def check_network(manifests: Manifests) -> None:
    """The run's pods reach each other, a page's pod the scheduler alone, and others nothing."""
    pods = [workload["template"]["metadata"]["labels"] for workload in manifests.workloads.values()]
    for receiver in pods:
        for port in (7070, 7071, 41000):
            assert all(manifests.reaches(sender, receiver, port) for sender in pods), receiver
            assert manifests.reaches({"app": "pando-view"}, receiver, port) == (port == 7070), receiver
            assert not manifests.reaches({"app": "other"}, receiver, port), receiver


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pando", required=True, type=os.path.abspath)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    apart = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if not options.inside:
        if os.geteuid() != 0 or subprocess.run([*apart, "ip", "link"], capture_output=True, check=False).returncode:
            skip("pods need root, namespaces and the program ip")
        os.execvp(apart[0], [*apart, sys.executable, "-B", *sys.argv, "--inside"])
    with tempfile.TemporaryDirectory(prefix="pando-test-") as name:
        folder = Path(name)
        deploy = shutil.copytree(DEPLOY, folder / "deploy")
        run(options.pando, "keys", "new", deploy / "keys")
        job = run(options.pando, "train", *JOB, "--servers", "3", "--workers", "2", "--dry-run")
        (deploy / "job.toml").write_text(job)
        manifests = Manifests(deploy)
        check_network(manifests)
        cluster = Cluster(folder, manifests, options.pando)
        play(cluster)
        steps, weights_hash = stop(cluster)
        serial = [options.pando, "train", deploy / "job.toml", "--serial", "--steps", steps, "--run-dir"]
        subprocess.run([*serial, folder / "serial"], capture_output=True, check=True)
        serial_hash = json.loads((folder / "serial/summary.json").read_text())["weights_hash"]
        cluster.say(f"stopped after {steps} steps, {weights_hash}; serial {serial_hash}")
        assert weights_hash == serial_hash, "the weights differ"
    return 0


if __name__ == "__main__":
    sys.exit(main())
