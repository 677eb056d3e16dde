"""Every clear error: what a user's mistake prints, and that the run ends with it."""
import unittest
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import torch.nn.utils.prune
import torch.utils.checkpoint
from support import FakeCase, Points, make_mlp, nn, pando, torch, without_dynamo, F
from test_training import make_norm


def train_step(run, model, batch, after=lambda: None, loss_of=F.cross_entropy):
    x, y = batch
    with run.micro_batch() as mb:
        loss = loss_of(model(x), y)
        loss.backward()
        mb.log(loss=loss)
        after()


class LoopErrorTest(FakeCase):
    def test_no_backward(self):
        def body(run, model, batch):
            with run.micro_batch():
                model(batch[0])
        self.assert_fails("call loss.backward", body)

    def test_no_micro_batch(self):
        self.assert_fails("did not call run.micro_batch", lambda run, model, batch: None)

    def test_a_loader_that_fetches_ahead(self):
        def fetch_ahead(batches):
            current = next(batches)
            for following in batches:
                yield current
                current = following
            yield current
        model = make_mlp()
        with self.assertRaisesRegex(pando.PandoError, "fetches ahead"):
            for batch in fetch_ahead(self.join(model).loader()):
                train_step(self.run_, model, batch)
        self.assertRegex(self.fake.failure, "fetches ahead")

    def test_two_micro_batches_for_one_batch(self):
        def body(run, model, batch):
            train_step(run, model, batch)
            with self.assertRaisesRegex(pando.PandoError, "without a new batch"):
                run.micro_batch()
            raise pando.PandoError("without a new batch")
        pando.seed(1)
        with self.assertRaises(pando.PandoError):
            model = make_mlp()
            for batch in self.join(model).loader():
                body(self.run_, model, batch)

    def test_backward_outside(self):
        def body(run, model, batch):
            train_step(run, model, batch)
            F.cross_entropy(model(batch[0]), batch[1]).backward()
        with self.assertRaisesRegex(pando.PandoError, "outside of run.micro_batch"):
            model = make_mlp()
            for batch in self.join(model).loader():
                body(self.run_, model, batch)

    def test_an_own_optimizer(self):
        def body(run, model, batch):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            train_step(run, model, batch, optimizer.step)
        self.assert_fails("remove the optimizer of torch.optim", body)

    def test_an_own_optimizer_after_the_block(self):
        def body(run, model, batch):
            optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
            train_step(run, model, batch)
            optimizer.step()
        self.assert_fails("remove the optimizer of torch.optim", body)

    def test_clip_grad_norm(self):
        def body(run, model, batch):
            train_step(run, model, batch, lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3))
        self.assert_fails("clip_norm=", body)

    def test_gradients_scaled_afterwards(self):
        def body(run, model, batch):
            train_step(run, model, batch, lambda: model[0].weight.grad.mul_(2))
        self.assert_fails("GradScaler", body)

    def test_a_scaler(self):
        class GradScaler:  # torch's own is off without a GPU
            def is_enabled(self):
                return True
        scalers = []

        def body(run, model, batch):
            scalers.append(GradScaler())
            train_step(run, model, batch)
        self.assert_fails("has a GradScaler", body)
        with self.assertRaisesRegex(pando.PandoError, "has a GradScaler"):
            next(self.join(make_mlp()).loader())
        scalers.clear()

    def test_requires_grad_changed(self):
        self.assert_fails("requires_grad of 0.weight was cleared",
                          lambda run, model, batch: (train_step(run, model, batch), model[0].requires_grad_(False)))

    def test_a_frozen_parameter_trained_later(self):
        def make():
            model = make_mlp()
            model[0].weight.requires_grad_(False)
            return model
        self.assert_fails("requires_grad of 0.weight was set",
                          lambda run, model, batch: (train_step(run, model, batch), model.requires_grad_(True)), make)

    def test_a_replaced_parameter(self):
        def body(run, model, batch):
            train_step(run, model, batch)
            model[0].bias = nn.Parameter(torch.zeros(8))
        self.assert_fails("0.bias was replaced", body)

    def test_parameters_that_appear_after_join(self):
        class Growing(nn.Module):  # a layer whose size the first batch decides
            def __init__(self):
                super().__init__()
                self.body, self.extra = make_mlp(), nn.ParameterList([nn.Parameter(torch.zeros(3))])

            def forward(self, x):
                if not hasattr(self, "head"):
                    self.head = nn.Linear(3, 3)
                return self.head(self.body(x) + sum(self.extra))

        class Adapter(nn.Module):
            def __init__(self, base):
                super().__init__()
                self.base, self.down = base, nn.Linear(8, 2, bias=False)
        changes = {"3.weight .and 1 more. was replaced": lambda m: m.__setitem__(3, nn.Linear(8, 3)),
                   "3.down.weight appeared": lambda m: m.__setitem__(3, Adapter(m[3])),
                   "4.weight .and 1 more. appeared": lambda m: m.append(nn.Linear(3, 3)),
                   "0.scale appeared": lambda m: m[0].register_parameter("scale", nn.Parameter(torch.ones(1))),
                   "4.running_mean appeared": lambda m: m.append(nn.BatchNorm1d(3, affine=False)),
                   "0.bias was replaced": lambda m: setattr(m[0], "bias", None)}
        for text, change in changes.items():
            for when in (-1, 1):  # before the loop, in it
                with self.subTest(text=text, when=when):
                    self.new_fake()
                    model = make_mlp()
                    run = self.join(model)
                    if when < 0:
                        change(model)
                    with self.assertRaisesRegex(pando.PandoError, text + " after pando.join, so that the run"):
                        for number, batch in enumerate(run.loader()):
                            self.assertGreaterEqual(when, number)
                            train_step(run, model, batch)
                            change(model)
        self.new_fake()
        self.assert_fails("head.weight .and 1 more. appeared", train_step, Growing)

        def append(run, model, batch):
            model.head = nn.Identity()
            train_step(run, model, batch)
            model.extra.append(nn.Parameter(torch.zeros(3)))
        self.new_fake()
        self.assert_fails("extra.1 appeared", append, Growing)

    def test_layers_without_parameters_may_be_replaced(self):
        def change(run, model, batch):
            train_step(run, model, batch)
            model[2] = nn.Dropout(0.1)
            model[1].name = "changed"
            model.add_module("last", nn.Identity())
        pando.seed(1)
        model = make_mlp()
        for batch in self.join(model).loader():
            change(self.run_, model, batch)
        self.assertEqual(self.fake.step, 3)

    def test_writes_through_data(self):
        def write(name, change, at=None, is_inside=True):
            def body(run, model, batch):
                def act():
                    if at is None or len(self.fake.losses) == at:
                        change(dict(model.named_parameters())[name])
                train_step(run, model, batch, act if is_inside else lambda: None)
                if not is_inside:
                    act()
            return body

        def make():  # so that 0.weight is checked now and then alone
            return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        changed, left = "{} was changed by the program.*also through .data", "the gradient of {} was changed"
        cases = (("0.weight", lambda p: p.data.add_(p.grad, alpha=-0.1), {}, changed),
                 ("0.weight", lambda p: p.data[0].clamp_(-0.01, 0.01), {}, changed),
                 ("0.weight", lambda p: p.data.mul_(0.5), dict(is_inside=False), changed),
                 ("0.weight", lambda p: p.data.view(-1)[:2].copy_(p.data.view(-1)[1:3].clone()), dict(at=1), changed),
                 ("2.bias", lambda p: p.data.mul_(0.5), dict(at=9), changed),
                 ("2.bias", lambda p: p.data.mul_(0.5), dict(at=9, is_inside=False), changed),
                 ("0.weight", lambda p: p.grad.data.clamp_(-1e-9, 1e-9), {}, left),
                 ("2.bias", lambda p: p.grad.data.mul_(2), dict(at=9), left),
                 ("0.weight", lambda p: setattr(p.grad, "data", p.grad.data / 2), dict(at=9), left),
                 ("0.weight", lambda p: setattr(p, "data", p.data / 2), dict(at=9),
                  "the memory of parameter {} was replaced"),
                 ("0.weight", lambda p: setattr(p, "data", p.data / 2), dict(at=9, is_inside=False),
                  "the memory of parameter {} was replaced"))
        for number, (name, change, options, message) in enumerate(cases):
            with self.subTest(number=number):
                self.new_fake()
                self.assert_fails(message.format(name), write(name, change, **options), make, steps=6)

        def halve(run, model, batch):
            train_step(run, model, batch)
            if self.fake.step == 2:
                values = nn.utils.parameters_to_vector(model.parameters())
                nn.utils.vector_to_parameters(values * 0.5, model.parameters())
        self.new_fake()
        self.assert_fails("the memory of parameter 0.weight was replaced", halve, make, steps=6)

    def test_checks_of_writes_change_nothing(self):
        def make():
            base = torch.zeros(13)
            layer = nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 3, 2), nn.Flatten(), nn.Linear(3, 3))
            layer.to(memory_format=torch.channels_last)
            layer[1].weight.data, layer[1].bias.data = base[1:13].view(3, 1, 2, 2), base[:1].expand(3).clone()
            return layer
        with mock.patch("pando_train._writes.EVERY", 1):
            expected = self.train(make).bits()
        self.new_fake().abandon = {(0, 1): "load:7", (0, 2): "load:9", (1, 1): "load:3"}
        self.assertEqual(self.train(make).bits(), expected)

    def test_other_types_after_join(self):
        def make():
            return nn.Sequential(nn.Linear(4, 600), nn.BatchNorm1d(600), nn.Linear(600, 3))
        changes = (("parameter 0.weight is torch.float16", lambda model: model.half()),
                   ("parameter 0.weight is torch.bfloat16", lambda model: model.bfloat16()),
                   ("parameter 0.weight is torch.float64", lambda model: model.double()),
                   ("parameter 2.bias is torch.float64", lambda model: setattr(
                       model[2].bias, "data", model[2].bias.data.double())),
                   ("statistic 1.running_mean is torch.float64", lambda model: setattr(
                       model[1], "running_mean", model[1].running_mean.double())))
        for text, change in changes:
            for when in ("before", "between", "inside", "first"):
                with self.subTest(text=text, when=when):
                    self.new_fake()
                    model = make()
                    run = self.join(model, evaluate_every_steps=1, micro_batches=1 if when == "between" else 4)
                    run.evaluate_with(Points(5), lambda x, y: dict(sum=model(x).sum()))
                    if when == "before":
                        change(model)
                    # Where the block begins with a change, torch may refuse first.
                    error = RuntimeError if when == "first" else pando.PandoError
                    with self.assertRaisesRegex(error, ".*" if when == "first" else text + ".*call model.float"):
                        for x, y in run.loader():
                            with run.micro_batch():
                                if when == "first":
                                    change(model)
                                F.cross_entropy(model(x.to(model[0].weight.dtype)).float(), y).backward()
                                if when == "inside":
                                    change(model)
                            change(model)
                    self.assertEqual(self.fake.evaluations, [])

    def test_reentrant_checkpointing(self):
        class Checkpointed(nn.Sequential):
            def forward(self, x):
                return torch.utils.checkpoint.checkpoint(super().forward, x.requires_grad_(), use_reentrant=True)
        self.assert_fails("use_reentrant=False", train_step, lambda: Checkpointed(*make_mlp()))

    def test_layers_and_averages_that_change_weights(self):
        with self.assertRaisesRegex(pando.PandoError, "module 0 .Embedding. has max_norm"):
            self.join(nn.Sequential(nn.Embedding(4, 3, max_norm=1.0)))
        model = make_mlp()
        average = torch.optim.swa_utils.AveragedModel(model)
        with self.assertRaisesRegex(pando.PandoError, "AveragedModel.*ema_decay="):
            next(self.join(model).loader())
        del average

    def test_a_momentum_that_changes(self):
        def body(run, model, batch):
            train_step(run, model, batch)
            model[1].momentum = 0.05
        self.assert_fails("momentum of batch norm 1 was changed after pando.join.* with 0.1", body, make_norm)

    def test_other_ways_to_change_the_parameters(self):
        changes = ((nn.utils.weight_norm, "0.weight_g .and 2 more. appeared"),
                   (lambda layer: nn.utils.prune.random_unstructured(layer, "weight", 0.5), "0.weight was replaced"),
                   (lambda layer: layer.weight.detach().numpy().fill(0.5), "0.weight was changed by the program"),
                   (lambda layer: layer.weight.detach().mul_(0.5), "0.weight was changed by the program"),
                   (lambda layer: layer.share_memory(), "memory of parameter 0.weight was replaced"),
                   (lambda layer: layer.requires_grad_(False), "requires_grad of 0.weight was cleared"))
        for change, text in changes:
            with self.subTest(text=text):
                self.new_fake()
                self.assert_fails(text, lambda run, model, batch, change=change: (
                    train_step(run, model, batch), change(model[0])))

    def test_a_buffer_changed_in_forward(self):
        class Counting(nn.Linear):
            def __init__(self):
                super().__init__(4, 3)
                self.register_buffer("calls", torch.zeros(()))

            def forward(self, x):
                self.calls += 1
                return super().forward(x)
        self.assert_fails("calls was changed during training", train_step, Counting)

    def test_a_sparse_gradient(self):
        class Sparse(nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding = nn.Embedding(5, 3, sparse=True)

            def forward(self, x):
                return self.embedding(torch.zeros(len(x), dtype=torch.long))
        self.assert_fails("sparse=False", train_step, Sparse)

    def test_a_gradient_that_is_not_finite(self):
        def loss_of(output, y):
            return output.sum() * float("nan")
        with self.assertRaisesRegex(pando.PandoError, "training has diverged"):
            model = make_mlp()
            for batch in self.join(model).loader():
                train_step(self.run_, model, batch, loss_of=loss_of)
        self.assertIsNone(self.fake.failure)  # the library has told the run

    def test_an_error_of_the_program_is_the_root_cause(self):
        def body(run, model, batch):
            with run.micro_batch():
                raise pando.PandoError("the cat sat on the disk")
        self.assert_fails("the cat sat on the disk", body)
        self.assertIn("test_errors.py", self.fake.failure)
        self.assertIn("Traceback", self.fake.failure)

    def test_a_forward_that_hides_a_parameter_which_the_first_one_showed(self):
        class Moody(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.calls = nn.Linear(4, 3), 0

            def forward(self, x):
                self.calls += 1
                if self.calls < 3:
                    return self.layer(x)
                with ThreadPoolExecutor() as pool:
                    return pool.submit(self.layer, x).result()
        with without_dynamo():
            self.assert_fails("layer.* was read before it had arrived", train_step, Moody)

    def test_micro_batch_weight(self):
        for weight, is_weighted, text in ((7.0, False, "go together"), (None, True, "go together"),
                                          (-1.0, True, "micro_batch is -1: expected"),
                                          (float("nan"), True, "expected")):
            with self.subTest(weight=weight), self.assertRaisesRegex(pando.PandoError, text):
                self.new_fake()
                for _ in self.join(make_mlp(), weighted=is_weighted).loader():
                    self.run_.micro_batch(weight=weight)


class JoinErrorTest(FakeCase):
    def assert_refused(self, text, model=None, data=None, optimizer=None, **options):
        with self.assertRaisesRegex(pando.PandoError, text):
            self.join(model or make_mlp(), data, optimizer, **options)

    def test_modules(self):
        frozen = make_mlp().requires_grad_(False)
        momentum = make_norm()
        momentum[1].momentum = None
        for text, model in (("no trainable", frozen), ("model.float", make_mlp().double()),
                            ("bfloat16 activations", make_mlp().bfloat16()), ("momentum=None", momentum),
                            ("BatchNorm1d", nn.Sequential(nn.Linear(4, 3), nn.SyncBatchNorm(3))),
                            ("once with a sample", nn.Sequential(nn.LazyLinear(3))),
                            ("model.module", nn.DataParallel(make_mlp())),
                            ("no elements", nn.ParameterList([nn.Parameter(torch.zeros(0, 3))]))):
            with self.subTest(text=text):
                self.assert_refused(text, model)

    def test_shared_memory(self):
        def tie(change):
            model = make_norm()
            model.append(nn.Linear(3, 3))
            change(model)
            return model
        rows = torch.zeros(6, 6)
        cases = (("0.weight and 3.weight", lambda m: setattr(m[3].weight, "data", m[0].weight.data.view(3, 8)[:, :6])),
                 ("3.weight and 4.weight", lambda m: setattr(m[4].weight, "data", m[3].weight.data[:, 3:])),
                 ("3.old and 3.weight", lambda m: m[3].register_buffer("old", m[3].weight.data)),
                 ("1.last and 1.running_mean", lambda m: m[1].register_buffer("last", m[1].running_mean[2:4])),
                 ("0.bias and 1.running_var", lambda m: setattr(m[1], "running_var", m[0].bias.data)),
                 ("3.bias and 4.bias", lambda m: (setattr(m[4].bias, "data", m[3].bias.data),
                                                  m[4].requires_grad_(False))),
                 ("elements of 3.bias", lambda m: setattr(m[3].bias, "data", torch.zeros(1).expand(3))))
        for text, change in cases:
            with self.subTest(text=text):
                self.assert_refused(text + " share memory", tie(change))
                if any(word in text for word in ("old", "last")):
                    continue  # a buffer that appears later is none of the run's
                model = tie(lambda m: None)
                run = self.join(model)
                change(model)
                with self.assertRaisesRegex(pando.PandoError, text + " share memory|replaced after pando.join"):
                    next(run.loader())

        def split(model):  # tensors beside each other in one memory, and one that two modules have
            model[0].bias.data, model[3].weight.data = rows[3], rows[:3]
            model[1].weight = model[0].bias
        self.train(lambda: tie(split))

    def test_a_device_without_memory(self):
        run = self.join(make_mlp().to("meta"))
        with self.assertRaisesRegex(pando.PandoError, "on the device meta: Pando trains on cpu and cuda"):
            next(run.loader())

    def test_data_sets(self):
        class Stream(torch.utils.data.IterableDataset):
            def __iter__(self):
                return iter([1])
        self.assert_refused("map-style", data=Stream())
        self.assert_refused("map-style", data=iter([1]))
        self.assert_refused("empty", data=Points(0).y)

    def test_optimizers_and_schedules(self):
        model = make_mlp()
        theirs = torch.optim.SGD(model.parameters(), lr=0.1)
        self.assert_refused("one optimizer", model, optimizer=[pando.SGD(), pando.Adam()])
        self.assert_refused("is a str", model, optimizer="sgd")
        self.assert_refused("together with its optimizer", model,
                            schedule=torch.optim.lr_scheduler.StepLR(theirs, 1))
        self.assert_refused("either epochs or steps", model, epochs=1)

    def test_groups(self):
        model = make_mlp()
        self.assert_refused("3.weight and 1 others", model, params=[dict(params=model[0].parameters())])
        self.assert_refused("in two groups", model, params=[dict(params=model.parameters()),
                                                            dict(params=model[0].weight)])
        self.assert_refused("no parameter of the module", model, params=[dict(params=make_mlp().parameters())])
        self.assert_refused("sets momentum", model, params=[dict(params=model.parameters(), momentum=0.5)])

    def test_params_that_are_no_parameters(self):
        model = make_mlp()
        for text, params in (("params is a Parameter", model[0].weight), ("params is a dict", dict(params=[])),
                             ("params is a int", 3), ("group 1 has no tensors", [dict(params=model.parameters()), 3]),
                             ("group 0 has no tensors", [dict(lr=1)]), ("group 0 has no tensors", ["0.weight"]),
                             ("and 1 others are in no group", model[3].parameters()),
                             ("lr of parameter group 0 is 'high'", [dict(params=model.parameters(), lr="high")]),
                             ("weight_decay of parameter group 0 is None",
                              [dict(params=model.parameters(), weight_decay=None)])):
            with self.subTest(text=text):
                self.assert_refused(text, model, params=params)

    def test_names_with_blanks(self):
        self.assert_refused("'left arm.weight' has a blank", nn.ModuleDict({"left arm": nn.Linear(4, 3)}))
        self.assert_refused(r"'1.a\\t.running_mean' has a blank", nn.Sequential(
            nn.Linear(4, 3), nn.ModuleDict({"a\t": nn.BatchNorm1d(3, affine=False)})))

    def test_arguments_of_other_types(self):
        for name, value in (("global_batch", 8.5), ("global_batch", "8"), ("micro_batches", True), ("steps", None),
                            ("steps", torch.tensor([1, 2])), ("seed", "one"), ("threads", 1.5), ("drop_last", "no"),
                            ("clip_norm", "1.0"), ("clip_value", float("nan")), ("ema_decay", [0.9]),
                            ("weighted", 2), ("exclude_bias_and_norm", None), ("evaluate_every_steps", 0.5),
                            ("evaluate_every_epochs", "1"), ("early_stop_patience", float("inf")),
                            ("early_stop_metric", 7)):
            with self.subTest(name=name, value=value):
                self.assert_refused("either epochs or steps" if value is None and name == "steps" else
                                    f"^{name} is .*: expected", **{name: value})
        for text, optimizer, schedule in (("lr of SGD is '0.1'", pando.SGD("0.1"), None),
                                          ("nesterov of SGD is 'yes'", pando.SGD(nesterov="yes"), None),
                                          ("betas of Adam is None", pando.Adam(betas=(0.9, None)), None),
                                          ("step_size of StepLR is 2.5", pando.SGD(), pando.StepLR(2.5)),
                                          ("milestones of MultiStepLR is 1.5", pando.SGD(),
                                           pando.MultiStepLR([1, 1.5]))):
            with self.subTest(text=text):
                self.assert_refused(text + ": expected", optimizer=optimizer, schedule=schedule)
        with self.assertRaisesRegex(pando.PandoError, "num_workers is 1.5: expected a whole number"):
            self.join(make_mlp()).loader(1.5)
        with self.assertRaisesRegex(pando.PandoError, "the seed is 'one'"):
            pando.seed("one")

    def test_a_loop_over_epochs_around_the_loader(self):
        def train(run):
            for batch in run.loader():
                train_step(run, model, batch)
        text = "is called in the loop of line [0-9]+, and would be called again"
        model = make_mlp()
        run = self.join(model)
        with self.assertRaisesRegex(pando.PandoError, text):
            for _ in range(3):
                for _ in run.loader():
                    pass
        with self.assertRaisesRegex(pando.PandoError, text):
            epoch = 0
            while epoch < 3:
                train(run)
                epoch += 1
        for _ in range(2):
            self.new_fake()
            run = self.join(model)
            train(run)
        for run in (self.join(model), self.join(model)):
            self.new_fake()
            train(run)
        for _ in range(2):
            self.new_fake()
            train(self.join(model))
        run = self.join(model)
        while True:
            train(run)
            break

        def make():
            nonlocal remade
            self.new_fake()
            remade = self.join(model)
        remade = None
        for _ in range(2):
            make()
            train(remade)

    def test_late_calls(self):
        run = self.join(make_mlp())
        with self.assertRaisesRegex(pando.PandoError, "without a new batch"):
            run.micro_batch()
        with self.assertRaisesRegex(pando.PandoError, "after the"):
            run.save("x")
        run.loader()
        with self.assertRaisesRegex(pando.PandoError, "twice"):
            run.loader()
        with self.assertRaisesRegex(pando.PandoError, "before run.loader"):
            run.evaluate_with(Points(), lambda x, y: {})


if __name__ == "__main__":
    unittest.main()
