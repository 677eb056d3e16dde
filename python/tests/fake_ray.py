"""As much of Ray as pando_train.ray uses, on one machine: an actor is an object whose methods run in threads."""
import os
import pickle
import signal
import sys
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from unittest import mock

NODE = "0123456789abcdef"


class RayTaskError(Exception):
    def __init__(self, cause):
        super().__init__(str(cause))
        self.cause = cause


class RayActorError(Exception):
    pass


class Actor:
    """A handle. `lose()` is the death of the actor: its process dies, and calls raise RayActorError."""

    def __init__(self, instance, options):
        self.instance, self.options, self.is_lost = instance, options, False
        self._threads = ThreadPoolExecutor(options["max_concurrency"])

    def __getattr__(self, name):
        return SimpleNamespace(remote=lambda *arguments: self._threads.submit(self._call, name, arguments))

    def _call(self, name, arguments):
        try:
            result = getattr(self.instance, name)(*arguments)
        except Exception as error:
            raise RayTaskError(error) from error
        if self.is_lost:
            raise RayActorError(f"{self.instance} is lost")
        return result

    def lose(self):
        self.is_lost = True
        self.instance.send(signal.SIGKILL)


@dataclass
class ScalingConfig:
    num_workers: object = 1
    use_gpu: bool = False
    resources_per_worker: object = None
    accelerator_type: object = None


@dataclass
class RunConfig:
    name: str = "run"
    storage_path: object = None
    storage_filesystem: object = None
    failure_config: object = field(default_factory=lambda: SimpleNamespace(max_failures=0))


class FakeRay:
    """The module ray. `actors` are all that were started, by name; `draining`: nodes that Ray drains."""

    def __init__(self):
        self.actors, self.draining, self.gauges = {}, {}, {}

    def remote(self, kind):
        def start(options, arguments):
            name = options["name"].rpartition("/")[2]
            self.actors[name] = Actor(kind(*arguments), options)
            return self.actors[name]
        return SimpleNamespace(options=lambda **options: SimpleNamespace(
            remote=lambda *arguments: start(options, arguments)))

    def wait(self, references, num_returns=1, timeout=None):
        done, rest = wait(references, timeout, FIRST_COMPLETED if num_returns == 1 else "ALL_COMPLETED")
        return list(done), list(rest)

    def set_gauge(self, name, value, tags):
        self.gauges[name] = (value, tags)

    def install(self):
        """A patch of sys.modules."""
        def module(name, **members):
            made = ModuleType(name)
            made.__dict__.update(members)
            return made
        group = SimpleNamespace(wait=lambda timeout: True)
        gauge = lambda name, text, tag_keys: SimpleNamespace(  # noqa: E731
            set=lambda value, tags: self.set_gauge(name, value, tags))
        state = SimpleNamespace(get_draining_nodes=lambda: self.draining)
        util = module("ray.util", get_node_ip_address=lambda: "127.0.0.1")
        modules = [
            util,
            module("ray", remote=self.remote, wait=self.wait, get=Future.result, util=util, kill=lambda actor: None,
                   is_initialized=lambda: True, init=lambda: None, cloudpickle=pickle,
                   get_runtime_context=lambda: SimpleNamespace(get_node_id=lambda: NODE),
                   exceptions=SimpleNamespace(RayTaskError=RayTaskError, RayActorError=RayActorError),
                   _private=SimpleNamespace(state=SimpleNamespace(state=state))),
            module("ray.train", Checkpoint=SimpleNamespace(from_directory=os.fspath), Result=SimpleNamespace,
                   RunConfig=RunConfig, ScalingConfig=ScalingConfig),
            module("ray.util.metrics", Gauge=gauge),
            module("ray.util.placement_group", placement_group=lambda bundles, strategy: group,
                   remove_placement_group=lambda group: None),
            module("ray.util.scheduling_strategies", NodeAffinitySchedulingStrategy=lambda node, soft: node,
                   PlacementGroupSchedulingStrategy=lambda group, placement_group_bundle_index=0: group),
            module("pandas", read_csv=lambda path: path),
        ]
        return mock.patch.dict(sys.modules, {made.__name__: made for made in modules})
