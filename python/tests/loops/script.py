"""A training script in parts, which the plain loop of torch and the loop of Pando share."""
import os
from types import SimpleNamespace

import torch
from torch.utils.data import DataLoader, Dataset

import pando_train as pando

COUNT, BATCH, EPOCHS = 64, 16, 6  # a run of 24 steps
EVALUATE_EVERY_STEPS = 4


class Samples(Dataset):
    """Sample `index` is make(index, generator): a tuple of tensors, drawn from the index alone."""

    def __init__(self, make, count=COUNT, first=0):
        self.make, self.count, self.first = make, count, first

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.make(index + self.first, torch.Generator().manual_seed(1000 + index + self.first))


class Script:
    """`body(batch, mb, turn)` does what the script does with a batch: zero_grad, forward, backward, mb.log and prints.

    `evaluate` is (test set, function, options), `report(results, rank)` the function for on_evaluation: it returns why
    training ends, or None. `weigh(batch)` is the weight of a micro-batch. `options` are those of pando.join.
    """

    def __init__(self, model, data, optimizer, body, schedule=None, micro_batches=4, weigh=None, evaluate=None,
                 report=None, **options):
        self.model, self.data, self.optimizer, self.body, self.schedule = model, data, optimizer, body, schedule
        self.micro_batches, self.weigh, self.evaluate, self.report, self.options = \
            micro_batches, weigh, evaluate, report, options

    def train_with_pando(self, epochs, batch, micro_batches=None, loader_workers=0):
        """The final weights, and the run."""
        run = pando.join(self.model, self.data, self.optimizer, schedule=self.schedule, epochs=epochs,
                         global_batch=batch, micro_batches=micro_batches or self.micro_batches,
                         weighted=self.weigh is not None, **self.options)
        if self.evaluate:
            data, function, options = self.evaluate
            run.evaluate_with(data, function, **options)
        if self.report:
            def report(results):
                why = self.report(results, run.rank)
                if why:
                    run.stop(why)
            run.on_evaluation(report)
        for part in run.loader(num_workers=loader_workers):
            with run.micro_batch(weight=self.weigh(part) if self.weigh else None) as mb:
                self.body(part, mb, run.turn)
        return self.copy_weights(), run

    def train_plainly(self, epochs, batch, seed=1):
        """The final weights, and the losses of all steps. The order and other draws depend on the seed."""
        losses, turns, optimizers = [], self.options.get("turns"), name_all(self.optimizer)
        schedules = name_all(self.schedule)
        mb = SimpleNamespace(log=lambda loss=None, **_: losses.append(float(loss)))
        order = torch.manual_seed(seed)
        for _ in range(epochs):
            for part in DataLoader(self.data, batch, shuffle=True, generator=order):
                turn = turns[len(losses) % len(turns)] if turns else None
                self.body(part, mb, turn)
                for name in [turn] if turns else optimizers:
                    self.make_step(name, optimizers[name], schedules.get(name))
                if self.should_stop(len(losses)):
                    return self.copy_weights(), losses
            if self.options.get("schedule_every") == "epoch":
                self.schedule.step()
        return self.copy_weights(), losses

    def make_step(self, name, optimizer, schedule):
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        if "clip_norm" in self.options:
            torch.nn.utils.clip_grad_norm_(parameters, self.options["clip_norm"])
        optimizer.step()
        if schedule and self.options.get("schedule_every") != "epoch":
            schedule.step()
        for parameter in parameters if name in self.options.get("weight_clip", {}) else []:
            parameter.data.clamp_(-self.options["weight_clip"][name], self.options["weight_clip"][name])

    def should_stop(self, step):
        if not self.report or step % EVALUATE_EVERY_STEPS:
            return False
        data, function, _ = self.evaluate
        self.model.eval()
        with torch.no_grad():
            sums = function(*next(iter(DataLoader(data, len(data)))))
        self.model.train()
        means = {name.replace("loss_sum", "loss"): float(value) / len(data) for name, value in sums.items()}
        return self.report(SimpleNamespace(version=step, **means), 0) is not None

    def copy_weights(self):
        return {name: value.clone() for name, value in self.model.state_dict().items()}


def name_all(objects):
    """A dict stays, one object gets the name None, and no object makes an empty dict."""
    return objects if isinstance(objects, dict) else {} if objects is None else {None: objects}


def save(contents, path, rank):
    """Replaces the file at once, as docs/pytorch.md asks for."""
    torch.save(contents, f"{path}.{rank}")
    os.replace(f"{path}.{rank}", path)


def draw_class(index, generator, *shape, classes=4):
    """A noisy pattern of the sample's class, and the class."""
    label = index % classes
    pattern = torch.randn(shape, generator=torch.Generator().manual_seed(label))
    return pattern + 0.5 * torch.randn(shape, generator=generator), torch.tensor(label)
