"""torchft's DiLoCo: a replica group is one worker under its own torchrun, and the groups exchange once in a round."""
import os
from datetime import timedelta
from pathlib import Path

import torch
import torch.nn.functional as F
from torchft import Manager, ProcessGroupGloo
from torchft.local_sgd import DiLoCo

import common

TIMEOUT = timedelta(seconds=10)


def train(job, replica_group: int) -> None:
    common.seed(job)
    pictures = common.Pictures(job)
    model = common.model_of(job, is_reentrant=False)
    inner = common.optimizer_of(job, model.parameters())
    outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)  # pando.DiLoCo's defaults

    def load(state) -> None:
        model.load_state_dict(state["model"])
        inner.load_state_dict(state["inner"])
        # The round that this process has just made is counted as committed, but another one's takes its place.
        with open(Path(job.folder, f"replaced-{os.getpid()}"), "ab") as file:
            file.write(job.local_steps * b".")

    manager = Manager(pg=ProcessGroupGloo(timeout=TIMEOUT), min_replica_size=1, load_state_dict=load,
                      state_dict=lambda: {"model": model.state_dict(), "inner": inner.state_dict()},
                      use_async_quorum=False, replica_id=f"replica_{replica_group}", timeout=TIMEOUT)
    log, target = None, job.steps * job.batch * job.workers

    def samples() -> int:
        return manager.batches_committed() * job.local_steps * job.batch

    def make_round() -> None:
        first = samples()
        for number in range(job.local_steps):
            x, labels = pictures.batch(first + number * job.batch * job.workers, replica_group)
            inner.zero_grad()
            F.cross_entropy(model(x), labels).backward()
            common.clip(job, model.parameters())
            inner.step()

    with DiLoCo(manager, [model], inner, outer, sync_every=job.local_steps):
        while samples() < target:
            before = samples()
            make_round()
            log = log or common.StepLog(job, replica_group)  # only once it is part of the group
            if samples() > before:  # otherwise the round was discarded
                log.add(samples())
    manager.shutdown(wait=False)
    common.finish(job, pictures, model, replica_group, job.workers, {}, tests_all=job.elastic)


if __name__ == "__main__":
    train(common.read_job(), int(os.environ["REPLICA_GROUP_ID"]))
    os._exit(0)  # its manager's threads wait for a group that has ended
