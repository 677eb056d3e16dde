"""DeepSpeed's ZeRO 1, 2 or 3 under torchrun, over gloo; killed and restored as DDP is, from DeepSpeed's checkpoints."""
import os
from pathlib import Path

import deepspeed
import torch.distributed as dist
import torch.nn.functional as F

import common
import memory_kinds


def configuration(job, world: int) -> dict:
    return {"train_micro_batch_size_per_gpu": job.batch, "train_batch_size": job.batch * world,
            "gradient_clipping": job.clip_norm, "steps_per_print": 10 ** 9, "zero_allow_untested_optimizer": True,
            "zero_optimization": {"stage": job.zero_stage, "overlap_comm": False, "contiguous_gradients": True}}


def train(job, rank: int, world: int) -> None:
    common.seed(job)
    pictures = common.Pictures(job)
    model = common.model_of(job)
    optimizer = common.optimizer_of(job, model.parameters())
    engine, zero, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=configuration(job, world))
    folder = Path(job.folder, "deepspeed")
    path, state = engine.load_checkpoint(str(folder)) if folder.exists() else (None, None)
    first, log = state["step"] if path else 0, common.StepLog(job, rank)

    def compute(step: int) -> None:
        x, labels = pictures.batch(step * job.batch * world, rank)
        engine.backward(F.cross_entropy(engine(x), labels))

    for step in range(first, job.steps):
        compute(step)
        engine.step()
        log.add((step + 1) * job.batch * world)
        if common.is_checkpoint_due(job, step + 1):
            engine.save_checkpoint(str(folder), client_state={"step": step + 1})
    kinds = memory_kinds.measure(model, optimizer, lambda: compute(job.steps)) if job.memory_kinds else {}
    engine.eval()
    common.finish(job, pictures, engine, rank, world, kinds)


def main() -> None:
    job = common.read_job()
    deepspeed.init_distributed(dist_backend="gloo")
    train(job, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
