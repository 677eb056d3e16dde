"""torchft: a replica group is one worker under its own torchrun, which starts it again; the others go on meanwhile."""
import os
from datetime import timedelta

import torch.nn.functional as F
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

import common
import memory_kinds

TIMEOUT = timedelta(seconds=10)


def train(job, replica_group: int) -> None:
    common.seed(job)
    pictures = common.Pictures(job)
    model = common.model_of(job, is_reentrant=False)
    inner = common.optimizer_of(job, model.parameters())

    def load(state) -> None:
        model.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    manager = Manager(pg=ProcessGroupGloo(timeout=TIMEOUT), min_replica_size=1, load_state_dict=load,
                      state_dict=lambda: {"model": model.state_dict(), "optimizer": inner.state_dict()},
                      replica_id=f"replica_{replica_group}", timeout=TIMEOUT)
    replica, optimizer, log = DistributedDataParallel(manager, model), Optimizer(manager, inner), None
    target = job.steps * job.batch * job.workers

    def compute() -> None:
        x, labels = pictures.batch(manager.batches_committed() * job.batch, replica_group)
        optimizer.zero_grad()
        F.cross_entropy(replica(x), labels).backward()

    while manager.batches_committed() * job.batch < target:
        compute()
        common.clip(job, model.parameters())
        optimizer.step()
        log = log or common.StepLog(job, replica_group)  # only once it is part of the group
        log.add(manager.batches_committed() * job.batch)
    manager.shutdown(wait=False)
    kinds = memory_kinds.of_state(model, inner) if job.memory_kinds else {}
    # If groups come and go, each one tests all pictures: the other may be gone at the end.
    common.finish(job, pictures, model, replica_group, job.workers, kinds, tests_all=job.elastic)


if __name__ == "__main__":
    train(common.read_job(), int(os.environ["REPLICA_GROUP_ID"]))
    os._exit(0)  # its manager's threads wait for a group that has ended
