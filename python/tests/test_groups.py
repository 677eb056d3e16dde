"""Blocks with several backwards and batch norms called twice, optimizers in turns, logged names, and reduce."""
import unittest
from unittest import mock

import torch
import torch.nn.functional as F
from torch import nn

from support import FakeCase, Points, make_mlp

import pando_train as pando
from pando_train import _script
from pando_train._optimizers import Turns


class Pair(nn.Module):
    """One network for both halves of a pair, with a batch norm."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, momentum=0.3), nn.ReLU())
        self.head = nn.Linear(6, 3)

    def forward(self, a, b):
        return self.head(self.body(a) - self.body(b))


def pair_loss(model, x, y):
    return F.cross_entropy(model(x, x.flip(1) * 2), y)


def train_plain(model, losses, steps=3, lr=0.1):
    """The loop of torch, with the whole data as each batch. `losses` are functions that are each differentiated."""
    data = Points()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        for loss in losses:
            loss(model, data.x, data.y).backward()
        optimizer.step()
    return model.state_dict()


class BlockTest(FakeCase):
    def train_blocks(self, make_model, losses, **options):
        pando.seed(1)
        model = make_model()
        run = self.join(model, global_batch=24, micro_batches=1, **options)
        for x, y in run.loader():
            with run.micro_batch():
                for loss in losses:
                    loss(model, x, y).backward()
        self.assertEqual(self.fake.raised, [])
        return model.state_dict()

    def assert_like_plain(self, make_model, losses):
        ours = self.train_blocks(make_model, losses)
        pando.seed(1)
        for name, value in train_plain(make_model(), losses).items():
            if "num_batches_tracked" not in name:
                torch.testing.assert_close(ours[name], value, atol=1e-6, rtol=1e-5, msg=name)

    def test_several_backwards_add_up(self):
        def first(model, x, y):
            return F.cross_entropy(model(x), y)

        def second(model, x, y):
            return model(-x).square().mean()
        self.assert_like_plain(make_mlp, [first, second])

    def test_a_norm_that_is_called_twice_moves_as_in_torch(self):
        self.assert_like_plain(Pair, [pair_loss])

    def test_calls_on_equal_inputs_count_each(self):
        def loss(model, x, y):
            return F.cross_entropy(model.head(model.body(x) + model.body(x)), y)
        self.assert_like_plain(Pair, [loss])

    def test_the_running_statistics_of_a_step_are_the_mean_of_its_parts_moves(self):
        pando.seed(1)
        model = Pair()
        whole = {name: value.clone() for name, value in model.state_dict().items()}
        run = self.join(model, global_batch=24, micro_batches=4, steps=1)
        moved = []
        for x, y in run.loader():
            with run.micro_batch():
                pair_loss(model, x, y).backward()
            part = Pair()
            part.load_state_dict(whole)
            pair_loss(part, x, y)
            moved.append(part.body[1].running_mean)
        torch.testing.assert_close(model.body[1].running_mean, torch.stack(moved).mean(0), atol=1e-6, rtol=1e-5)

    def test_what_begins_to_repeat_later_is_refused_or_leaves_at_the_end(self):
        def body(run, model, batch, **options):
            with run.micro_batch(**options) as mb:
                for _ in range(2 if mb.step else 1):
                    F.cross_entropy(model(batch[0]), batch[1]).backward()
        self.assert_fails("send_at_end=True", body)

        def fewer(run, model, batch):
            with run.micro_batch() as mb:
                for _ in range(1 if mb.step else 2):
                    F.cross_entropy(model(batch[0]), batch[1]).backward()
        self.new_fake()
        self.assert_fails("and others once: pass run.micro_batch.send_at_end=True", fewer)
        self.new_fake()
        pando.seed(1)
        model = make_mlp()
        run = self.join(model)
        for batch in run.loader():
            body(run, model, batch, send_at_end=True)
        self.assertEqual(self.fake.raised, [])

        def twice(run, model, batch):
            with run.micro_batch() as mb:
                x = batch[0]
                output = model(x, -x) if mb.step else model.head(model.body(x))
                output.sum().backward()
        self.new_fake()
        self.assert_fails("norm body.1 was called twice", twice, Pair)

    def test_changes_between_two_backwards_are_found(self):
        changes = dict(zero=lambda model: model.zero_grad(),
                       clip=lambda model: nn.utils.clip_grad_norm_(model.parameters(), 1e-3))
        for name, change in changes.items():
            def body(run, model, batch, change=change):
                with run.micro_batch():
                    F.cross_entropy(model(batch[0]), batch[1]).backward()
                    change(model)
                    F.cross_entropy(model(batch[0]), batch[1]).backward()
            with self.subTest(name):
                self.new_fake()
                self.assert_fails("was changed after backward", body)

    def test_spectral_norms_iterate_as_in_torch(self):
        def make_old():
            return nn.Sequential(nn.utils.spectral_norm(nn.Linear(4, 6)), nn.ReLU(), nn.Linear(6, 3))

        def make_new():
            return nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 6)), nn.ReLU(), nn.Linear(6, 3))

        def twice(model, x, y):
            return F.cross_entropy(model(x) + model(-x), y)
        for make in (make_old, make_new):
            with self.subTest(make.__name__):
                self.new_fake()
                self.assert_like_plain(make, [twice])
                expected = {name: value.clone() for name, value in self.run_.table.module.state_dict().items()}
                self.new_fake().abandon = {(1, 0): "give:2", (2, 0): "finish"}
                ours = self.train_blocks(make, [twice])
                self.assertTrue(all(torch.equal(ours[name], value) for name, value in expected.items()))

    def test_checkpointing_repeats_no_call(self):
        class Checkpointed(Pair):
            def forward(self, a, b):
                run = torch.utils.checkpoint.checkpoint
                return self.head(run(self.body, a, use_reentrant=False) - run(self.body, b, use_reentrant=False))
        ours = self.train_blocks(Checkpointed, [pair_loss])
        self.new_fake()
        for name, value in self.train_blocks(Pair, [pair_loss]).items():
            self.assertTrue(torch.equal(ours[name], value), name)


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.d, self.g = nn.Linear(4, 3), nn.Linear(4, 3)


class TurnTest(FakeCase):
    def make(self, kind=torch.optim.Adam, **options):
        model = Two()
        return model, dict(d=kind(model.d.parameters(), lr=0.25, **options), g=kind(model.g.parameters(), lr=0.5))

    def sections(self, model, optimizers, **options):
        return self.join(model, None, optimizers, **options)._sections

    def test_turns_have_the_groups_options_and_rates(self):
        model, optimizers = self.make(betas=(0.5, 0.9))
        sections = self.sections(model, optimizers, turns=["d", "d", "g"], weight_clip=dict(d=0.01))
        self.assertEqual(sections["optimizer"]["groups"],
                         ["type=adam beta1=0.5 beta2=0.9 eps=1e-08 weight_clip=0.01",
                          "type=adam beta1=0.9 beta2=0.999 eps=1e-08"])
        self.assertEqual(sections["optimizer"]["turns"], [0, 0, 1])
        self.assertEqual(sections["optimizer"]["lr"], 0.5)
        entries = {entry.name: entry for entry in self.run_.table.entries}
        self.assertEqual((entries["d.weight"].group, entries["d.weight"].lr_factor), (0, 0.5))
        self.assertEqual((entries["g.bias"].group, entries["g.bias"].lr_factor), (1, 1.0))

    def test_each_group_has_its_own_scheduler(self):
        model, optimizers = self.make()
        schedules = dict(d=torch.optim.lr_scheduler.ExponentialLR(optimizers["d"], 0.5))
        sections = self.sections(model, optimizers, turns=["d", "g"], schedule=schedules, schedule_every="step",
                                 steps=5)
        self.assertEqual(sections["schedule"]["rates"], ["0.25", "0.5", "0.125", "0.5", "0.0625"])
        self.assertEqual({entry.lr_factor for entry in self.run_.table.entries}, {1.0})
        sections = self.sections(model, optimizers, turns=["d", "g"], schedule=schedules, schedule_every="epoch",
                                 steps=8)
        self.assertEqual(sections["schedule"]["rates"],
                         ["0.25", "0.5", "0.25", "0.5", "0.25", "0.5", "0.125", "0.5"])

    def test_without_turns_equal_optimizers_are_one(self):
        model = Two()
        optimizers = dict(d=torch.optim.SGD(model.d.parameters(), lr=0.1, weight_decay=0.5),
                          g=torch.optim.SGD(model.g.parameters(), lr=0.2))
        sections = self.sections(model, optimizers)
        self.assertNotIn("turns", sections["optimizer"])
        found = {entry.name: (entry.lr_factor, entry.weight_decay) for entry in self.run_.table.entries}
        self.assertEqual(found["d.weight"], (0.5, 0.5))
        self.assertEqual(found["g.weight"], (1.0, 0.0))

    def test_what_does_not_go_together_is_named(self):
        model, optimizers = self.make(betas=(0.5, 0.9))
        plain = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.StepLR(torch.optim.SGD(model.parameters(), lr=0.1), 1)
        for text, given, options in (
                ("no turns, and beta1 differs", optimizers, {}), ("turns is", optimizers, dict(turns=["d"])),
                ("turns is", optimizers, dict(turns=["d", "x"])), ("several optimizers", plain, dict(turns=["d"])),
                ("weight_clip has", optimizers, dict(turns=["d", "g"], weight_clip=dict(x=1))),
                ("expected a dict of schedulers", optimizers,
                 dict(turns=["d", "g"], schedule=schedule)),
                ("schedule of d is a OneCycle", optimizers, dict(turns=["d", "g"], schedule=dict(d=pando.OneCycle()))),
                ("names need turns=", dict(d=optimizers["d"]), dict(weight_clip=dict(d=1))),
                ("of torch.optim", dict(d=pando.SGD(), g=pando.SGD()), dict(turns=["d", "g"])),
                ("several optimizers need names", list(optimizers.values()), {})):
            with self.subTest(text), self.assertRaisesRegex(pando.PandoError, text):
                self.join(model, None, given, **options)
        nadam = {name: torch.optim.NAdam(getattr(model, name).parameters()) for name in ("d", "g")}
        with self.assertRaisesRegex(pando.PandoError, "NAdam, which has no turns"):
            self.join(model, None, nadam, turns=["d", "g"])

    def test_the_steps_before_a_step(self):
        turns = Turns(["d", "g"], ["d", "d", "g"])
        self.assertEqual([turns.before(step) for step in range(7)], [0, 1, 0, 2, 3, 1, 4])
        self.assertEqual([turns.count("d", steps) for steps in range(5)], [0, 1, 2, 2, 3])
        self.assertEqual([turns.passes(step, 4) for step in range(9)], [0, 0, 0, 0, 0, 0, 1, 1, 1])
        self.assertIsNone(Turns([], None).at(7))


class LogTest(FakeCase):
    def test_any_name_is_logged(self):
        pando.seed(1)
        model = make_mlp()
        with mock.patch.object(_script, "read_tree", lambda path: _script.ast.parse(
                "with run.micro_batch() as mb:\n    mb.log(loss=1, kl=2, **more)\nother.log(no=1)")):
            run = self.join(model, log=["late"])
        self.assertEqual(run.log_names, ["kl", "late"])
        for x, y in run.loader():
            with run.micro_batch() as mb:
                value = F.cross_entropy(model(x), y)
                value.backward()
                mb.log(late=torch.tensor(2.0) if mb.step else float("nan"))
        sums = {step: values for step, _, values in self.fake.losses}
        self.assertLess(sums[0][3], -1e300)
        self.assertEqual(sums[1][3], 4.0)  # of two samples
        self.assertLess(sums[1][2], -1e300)

    def test_names_that_cannot_be_columns_are_refused(self):
        for name in ("lr", "step_ms", "test_loss", "a b"):
            with self.subTest(name), self.assertRaisesRegex(pando.PandoError, "cannot log"):
                self.join(make_mlp(), log=[name])
        with self.assertRaisesRegex(pando.PandoError, "expected a list"):
            self.join(make_mlp(), log="kl")

        def body(run, model, batch):
            with run.micro_batch() as mb:
                F.cross_entropy(model(batch[0]), batch[1]).backward()
                mb.log(**{"dice": 1})
        self.assert_fails("log=\\['dice'\\]", body)


class ReduceTest(FakeCase):
    def evaluate(self, reduce, function=lambda x, y: (x, y), **options):
        def set_up(run, model):
            run.evaluate_with(Points(count=10), function, batch_size=4, reduce=reduce)
        self.train(evaluate=set_up, **options)
        return self.fake.evaluations[-1][1]

    def test_reduce_gets_all_batches_in_order(self):
        seen = []

        def reduce(results):
            seen.append([len(y) for _, y in results])
            return dict(loss=2.5, spread=float(torch.cat([x for x, _ in results]).std()))
        sums = self.evaluate(reduce)
        self.assertEqual(seen[0], [4])  # the trial, which learns the names
        self.assertEqual(seen[-1], [4, 4, 2])
        self.assertEqual(sums["loss_sum"], 25.0)
        self.assertAlmostEqual(sums["spread"], 10 * float(Points(count=10).x.std()), places=5)
        self.assertTrue(self.fake.job["eval"]["whole"])

    def test_named_functions_need_no_trial(self):
        calls = []
        sums = self.evaluate(dict(auc=lambda results: calls.append(len(results)) or 0.75))
        self.assertEqual(sums, {"auc": 7.5})
        self.assertEqual(set(calls), {3})

    def test_a_reduce_that_needs_more_samples(self):
        def reduce(results):
            raise ValueError("only one class")
        with self.assertRaisesRegex(pando.PandoError, "only one class.*needs no trial"):
            self.evaluate(reduce)
        with self.assertRaisesRegex(pando.PandoError, "name the value accuracy"):
            self.evaluate(dict(correct=lambda results: 0.5))
        with self.assertRaisesRegex(pando.PandoError, "returned a float"):
            self.evaluate(lambda results: 0.5)


if __name__ == "__main__":
    unittest.main()
