"""pando_train: `pando run` starts this as each worker. A step has one micro-batch for each worker."""
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

    run = pando.join(model, range(len(pictures.train)), optimizer_of(job), steps=job.steps,
                     global_batch=job.batch * job.workers, micro_batches=job.workers, clip_norm=job.clip_norm,
                     drop_last=True, evaluate_every_epochs=0)
    run.evaluate_with(range(-len(pictures.test), 0), lambda x, y: {"correct": (model(x).argmax(1) == y).sum()},
                      batch_size=common.EVALUATION_BATCH)
    for x, labels in run.loader(collate_fn=read):
        with run.micro_batch():
            F.cross_entropy(model(x), labels).backward()


if __name__ == "__main__":
    main()
