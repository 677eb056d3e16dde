"""PyTorch's DistributedDataParallel under torchrun. A death ends the group, which restarts at the checkpoint.

A plain job has one worker, without DistributedDataParallel."""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import common
import memory_kinds


def restore(job, model, optimizer) -> int:
    """Loads the newest checkpoint. Returns the samples before it; 0 without one."""
    if not common.checkpoint_path(job).exists():
        return 0
    state = torch.load(common.checkpoint_path(job), map_location="cpu")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["samples"]


def train(job, rank: int, world: int, device: str) -> None:
    common.seed(job)
    pictures = common.Pictures(job, device)
    model = common.model_of(job).to(device)
    replica = model if job.plain else DistributedDataParallel(model, gradient_as_bucket_view=True)
    step_model = torch.compile(replica) if job.compiled else replica
    optimizer = common.optimizer_of(job, model.parameters())
    samples, log, steps = restore(job, model, optimizer), common.StepLog(job, rank), 0

    def compute() -> None:
        x, labels = pictures.batch(samples, rank)
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(step_model(x), labels).backward()

    while samples < job.steps * job.batch * job.workers:
        compute()
        common.clip(job, model.parameters())
        optimizer.step()
        samples, steps = samples + job.batch * world, steps + 1
        log.add(samples)
        if rank == 0 and common.is_checkpoint_due(job, steps):
            common.save_checkpoint(job, samples=samples, model=model.state_dict(), optimizer=optimizer.state_dict())
    kinds = memory_kinds.measure(model, optimizer, compute) if job.memory_kinds else {}
    common.finish(job, pictures, model, rank, world, kinds)


def main() -> None:
    job, rank, world = common.read_job(), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = f"cuda:{os.environ['LOCAL_RANK']}" if job.device == "cuda" else "cpu"
    dist.init_process_group("nccl" if job.device == "cuda" else "gloo")
    train(job, rank, world, device)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
