"""A run of five steps, and what scripts do around their loop.

after_script.py wait | exit | raise | exit-in-loop | frozen
"""
import os
import sys
import time

from support import F, nn, pando, torch

what = sys.argv[1]
rank = os.environ.get("PANDO_RANK", "0")
generator = torch.Generator().manual_seed(1)
data = torch.utils.data.TensorDataset(torch.randn(64, 4, generator=generator),
                                      torch.randint(3, (64,), generator=generator))
if what != "frozen":  # otherwise each worker draws its own first layer
    pando.seed(1)
model = nn.Sequential(nn.Linear(4, 6).requires_grad_(what != "frozen"), nn.Tanh(), nn.Linear(6, 3))
run = pando.join(model, data, pando.SGD(lr=0.1), steps=5, global_batch=64, micro_batches=2)
for x, y in run.loader():
    with run.micro_batch():
        if what == "exit-in-loop" and run.facts.rank == 0:
            sys.exit(3)
        F.cross_entropy(model(x), y).backward()
if what == "exit":
    sys.exit(7)
if what == "raise":
    raise ValueError("the plot has no axes")
if what == "wait":
    with open(f"waiting-{rank}", "w") as file:
        file.write(f"{os.getpid()}\n")
    while not os.path.exists("go"):
        time.sleep(0.02)
run.save(f"saved-{rank}.safetensors")
