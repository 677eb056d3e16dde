"""pando_train: `pando run` starts this as each worker. A step has one micro-batch, or one round, for each worker."""
import pando_train as pando
import torch
import torch.nn.functional as F

import common


def optimizer_of(job) -> pando.optim.Optimizer:
    if job.optimizer == "adam":
        return pando.Adam(lr=job.lr, betas=(job.beta1, job.beta2), weight_decay=job.weight_decay)
    return pando.SGD(lr=job.lr, momentum=job.momentum, weight_decay=job.weight_decay)


def main() -> None:
    job = common.read_job()
    pictures = common.Pictures(job)
    pando.seed(job.seed)
    model = common.model_of(job, is_reentrant=False)

    def read(indices):
        """Test pictures have negative indices, which count from the end."""
        index = torch.tensor(indices)
        return pictures.test_batch(index) if indices[0] < 0 else pictures.train_batch(index)

    has_rounds = job.local_steps > 1
    inner = common.optimizer_of(job, model.parameters())
    updates = {"outer": pando.DiLoCo(job.local_steps)} if has_rounds else {"clip_norm": job.clip_norm}
    run = pando.join(model, range(len(pictures.train)), inner if has_rounds else optimizer_of(job),
                     steps=job.steps // job.local_steps, global_batch=job.batch * job.workers,
                     micro_batches=job.workers, drop_last=True, evaluate_every_epochs=0, **updates)
    run.evaluate_with(range(-len(pictures.test), 0), lambda x, y: {"correct": (model(x).argmax(1) == y).sum()},
                      batch_size=common.EVALUATION_BATCH)
    if has_rounds:
        make_rounds(run, job, model, inner, read)
        return
    for x, labels in run.loader(collate_fn=read):
        with run.micro_batch():
            F.cross_entropy(model(x), labels).backward()


def make_rounds(run, job, model, inner, read) -> None:
    for batches in run.rounds(collate_fn=read):
        with run.round():
            for x, labels in batches:
                inner.zero_grad()
                F.cross_entropy(model(x), labels).backward()
                common.clip(job, model.parameters())
                inner.step()


if __name__ == "__main__":
    main()
