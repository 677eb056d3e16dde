"""Ray Train's TorchTrainer over gloo: the driver. After a death the next attempt begins at the checkpoint."""
import sys
import tempfile
from pathlib import Path

import ray
import torch
import torch.nn.functional as F
from ray import train as ray_train
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

import common
import memory_kinds


def report(model, optimizer, step: int, rank: int) -> None:
    """All workers report; the first one's report carries the state."""
    if rank != 0:
        return ray_train.report({"step": step})
    with tempfile.TemporaryDirectory() as folder:
        torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()},
                   Path(folder, "state.pt"))
        ray_train.report({"step": step}, checkpoint=Checkpoint.from_directory(folder))


def restore(model, optimizer) -> int:
    checkpoint = ray_train.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as folder:
        state = torch.load(Path(folder, "state.pt"), map_location="cpu")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]


def train_worker(config) -> None:
    sys.argv[1:] = [config["job"]]
    job, context = common.read_job(), ray_train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    common.seed(job)
    pictures = common.Pictures(job)
    model = common.model_of(job)
    replica = ray_train.torch.prepare_model(
        model, parallel_strategy_kwargs={"gradient_as_bucket_view": True} if world > 1 else None)
    optimizer = common.optimizer_of(job, model.parameters())
    first, log = restore(model, optimizer), common.StepLog(job, rank)

    def compute(step: int) -> None:
        x, labels = pictures.batch(step * job.batch * world, rank)
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(replica(x), labels).backward()

    for step in range(first, job.steps):
        compute(step)
        common.clip(job, model.parameters())
        optimizer.step()
        log.add((step + 1) * job.batch * world)
        if common.is_checkpoint_due(job, step + 1):
            report(model, optimizer, step + 1, rank)
    kinds = memory_kinds.measure(model, optimizer, lambda: compute(job.steps)) if job.memory_kinds else {}
    common.finish(job, pictures, model, rank, world, kinds)


def main() -> None:
    job = common.read_job()
    path = [str(Path(__file__).parent)]
    # Its sockets' paths are long, and a Unix socket's path is short: its folder is not the run's.
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        ray.init(num_cpus=job.workers, include_dashboard=False, object_store_memory=1 << 27, _temp_dir=folder,
                 runtime_env={"env_vars": {"PYTHONPATH": ":".join(path), "OMP_NUM_THREADS": "1"}})
        TorchTrainer(train_worker, train_loop_config={"job": sys.argv[1]}, torch_config=TorchConfig(backend="gloo"),
                     scaling_config=ScalingConfig(num_workers=job.workers, use_gpu=False),
                     run_config=RunConfig(name="run", storage_path=str(Path(job.folder, "ray").resolve()),
                                          failure_config=FailureConfig(max_failures=job.restarts_max))).fit()
        ray.shutdown()


if __name__ == "__main__":
    main()
