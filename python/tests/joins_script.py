"""Trains a body with a head, and then another head on the frozen body.

joins_script.py STEPS [first | between | again | second | after]... : where one process is killed, once. Or fail, which
is an error in the second loop.
"""
import os
import signal
import sys

from support import F, nn, pando, torch

steps, events = int(sys.argv[1]), sys.argv[2:]
generator = torch.Generator().manual_seed(1)
data = torch.utils.data.TensorDataset(torch.randn(64, 4, generator=generator),
                                      torch.randint(3, (64,), generator=generator))


def die(event):
    if event not in events:
        return
    try:
        os.close(os.open(f"killed-{event}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def train(model, event):
    run = pando.join(model, data, pando.SGD(lr=0.1, momentum=0.9), steps=steps, global_batch=16, micro_batches=4)
    for x, y in run.loader():
        with run.micro_batch() as mb:
            if mb.step == 3:
                die(event)
                if (event, events) == ("second", ["fail"]):
                    raise ValueError("the second head is upside down")
            F.cross_entropy(model(x), y).backward()
    return run


pando.seed(1)
body = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.2))
train(nn.Sequential(body, nn.Linear(6, 3)), "first")
die("again" if os.environ.get("PANDO_EARLIER_RUNS") else "between")
run = train(nn.Sequential(body.requires_grad_(False), nn.Linear(6, 3)), "second")
die("after")
run.save(f"saved-{run.rank}.safetensors")
