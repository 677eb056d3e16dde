"""Does what a user's script does, with one of the tests' networks.

train_script.py NETWORK STEPS LOADER_WORKERS [FAIL_AT [thread]]

The network with a batch norm weighs its classes. TEST_STALENESS: join's staleness.
"""
import os
import sys
import threading

from networks import CLASS_WEIGHTS, MAKERS, Pictures
from support import F, pando

name, steps, loader_workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
fail_at = int(sys.argv[4]) if len(sys.argv) > 4 else None
if sys.argv[5:] == ["thread"]:
    threading.Thread(target=threading.Event().wait, name="of the script", daemon=True).start()

pando.seed(1)
model = MAKERS[name]()
run = pando.join(model, Pictures(), pando.AdamW(lr=3e-3), schedule=pando.OneCycle(), steps=steps, global_batch=16,
                 micro_batches=4, clip_norm=5.0, weighted=name == "norm",
                 staleness=int(os.environ.get("TEST_STALENESS", "0")))
class_weights = CLASS_WEIGHTS if name == "norm" else None
run.evaluate_with(Pictures(40, 0.0), lambda x, y: dict(
    correct=(model(x).argmax(1) == y).sum(), loss_sum=F.cross_entropy(model(x), y, reduction="sum")), batch_size=16)
for x, y in run.loader(num_workers=loader_workers):
    with run.micro_batch(weight=None if class_weights is None else class_weights[y].sum()) as mb:
        if mb.step == fail_at:
            raise ValueError("the forty-second picture is upside down")
        loss = F.cross_entropy(model(x), y, weight=class_weights)
        loss.backward()
        mb.log(loss=loss)
run.save(f"{run.facts.run_dir}/saved-{run.facts.rank}.safetensors")
