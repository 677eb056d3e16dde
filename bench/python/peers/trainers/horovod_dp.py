"""Horovod over gloo, plain or elastic (job.elastic): there a killed worker's host is left out and the others go on."""
import horovod.torch as hvd
import torch.nn.functional as F

import common
import memory_kinds


def train(job, state, pictures, model) -> None:
    log = common.StepLog(job, hvd.rank())
    target = job.steps * job.batch * job.workers
    while state.samples < target:
        compute(job, state, pictures, model)
        state.optimizer.synchronize()
        common.clip(job, model.parameters())
        with state.optimizer.skip_synchronize():
            state.optimizer.step()
        state.samples += job.batch * hvd.size()
        state.steps += 1
        log.add(state.samples)
        if job.elastic and common.is_checkpoint_due(job, state.steps):
            state.commit()
    state.commit()


def compute(job, state, pictures, model) -> None:
    x, labels = pictures.batch(state.samples, hvd.rank())
    state.optimizer.zero_grad()
    F.cross_entropy(model(x), labels).backward()


def main() -> None:
    job = common.read_job()
    hvd.init()
    common.seed(job)
    pictures, model = common.Pictures(job), common.model_of(job)
    inner = common.optimizer_of(job, model.parameters())
    optimizer = hvd.DistributedOptimizer(inner, named_parameters=model.named_parameters())
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, samples=0, steps=0)
    if job.elastic:
        hvd.elastic.run(lambda state: train(job, state, pictures, model))(state)
    else:
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)  # the elastic form does it when a worker joins
        train(job, state, pictures, model)
    kinds = {}
    if job.memory_kinds:
        kinds = memory_kinds.measure(model, inner, lambda: compute(job, state, pictures, model))
        optimizer.synchronize()
    common.finish(job, pictures, model, hvd.rank(), hvd.size(), kinds)


if __name__ == "__main__":
    main()
