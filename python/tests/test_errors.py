"""Every clear error: what a user's mistake prints, and that the run ends with it."""
import unittest
from concurrent.futures import ThreadPoolExecutor

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

    def test_two_backwards(self):
        def body(run, model, batch):
            with run.micro_batch():
                F.cross_entropy(model(batch[0]), batch[1]).backward()
                F.cross_entropy(model(batch[0]), batch[1]).backward()
        self.assert_fails("second gradient", body)

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
        scaler = GradScaler()
        self.assert_fails("has a GradScaler", train_step)
        del scaler

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

    def test_reentrant_checkpointing(self):
        class Checkpointed(nn.Sequential):
            def forward(self, x):
                return torch.utils.checkpoint.checkpoint(super().forward, x.requires_grad_(), use_reentrant=True)
        self.assert_fails("use_reentrant=False", train_step, lambda: Checkpointed(*make_mlp()))

    def test_a_norm_called_twice(self):
        class Twice(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm, self.layer = nn.BatchNorm1d(4), nn.Linear(4, 3)

            def forward(self, x):
                return self.layer(self.norm(self.norm(x) * 2))
        self.assert_fails("norm was called twice", train_step, Twice)

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
                                          (-1.0, True, "weight=-1.: expected"), (float("nan"), True, "expected")):
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
        self.assert_refused("torch's SGD", model, optimizer=theirs)
        self.assert_refused("one optimizer", model, optimizer=[pando.SGD(), pando.Adam()])
        self.assert_refused("is a str", model, optimizer="sgd")
        self.assert_refused("pando.schedule", model, schedule=torch.optim.lr_scheduler.StepLR(theirs, 1))
        self.assert_refused("either epochs or steps", model, epochs=1)

    def test_groups(self):
        model = make_mlp()
        self.assert_refused("3.weight and 1 others", model, params=[dict(params=model[0].parameters())])
        self.assert_refused("in two groups", model, params=[dict(params=model.parameters()),
                                                            dict(params=model[0].weight)])
        self.assert_refused("no parameter of the module", model, params=[dict(params=make_mlp().parameters())])
        self.assert_refused("sets momentum", model, params=[dict(params=model.parameters(), momentum=0.5)])

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
