"""A script whose reading processes are spawned: spawn_script.py METHOD FOLDER [guarded]"""
import multiprocessing
import os
import sys

import torch
from support import F, Points, make_mlp, pando
from fake_library import FakeRun

os.environ["PANDO_SCHEDULER"] = "fake"


def main():
    import pando_train._library
    fake = FakeRun(sys.argv[2])
    pando_train._library.load_library = lambda: fake.library
    multiprocessing.set_start_method(sys.argv[1], force=True)
    pando.seed(1)
    model = make_mlp()
    run = pando.join(model, Points(noise=0.5), pando.SGD(lr=0.1), steps=3, global_batch=8, micro_batches=4)
    for x, y in run.loader(num_workers=2):
        with run.micro_batch():
            F.cross_entropy(model(x), y).backward()
    print("trained", torch.cat([value.flatten() for value in model.parameters()]).sum().item())


if __name__ == "__main__" or sys.argv[3:] != ["guarded"]:
    main()
