"""Rounds of local steps (DiLoCo) beside plain loops, and what a round must not do."""
import copy
import unittest
import warnings

from support import F, FakeCase, make_mlp, nn, pando, torch

INNER_LR = 0.05


def make_normed():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8, momentum=0.25), nn.ReLU(), nn.Linear(8, 3))


def local_steps(model, optimizer, batches):
    for x, y in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    return loss


class RoundTest(FakeCase):
    def join_rounds(self, make_model=make_mlp, kind=torch.optim.AdamW, outer=None, **options):
        pando.seed(1)
        self.model = make_model()
        self.inner = kind(self.model.parameters(), lr=INNER_LR)
        options = {"steps": 3, "global_batch": 4, "micro_batches": 2, **options}
        return self.join(self.model, None, self.inner, outer=outer or pando.DiLoCo(local_steps=3), **options)

    def train_rounds(self, *arguments, num_workers=0, **options):
        run = self.join_rounds(*arguments, **options)
        self.samples = []
        for batches in run.rounds(num_workers=num_workers):
            with run.round() as part:
                seen = []
                loss = local_steps(self.model, self.inner, (seen.append(batch) or batch for batch in batches))
                part.log(loss=loss)
                self.samples.append((part.step, part.index, seen))
        self.assertEqual(self.fake.raised, [])
        return {name: value.clone() for name, value in self.model.state_dict().items()}

    def assert_like_a_plain_loop(self, ours, make_model, kind, outer):
        """The same rounds by hand, on the samples that the run has used: the mean of the local models, then the outer
        optimizer of torch."""
        pando.seed(1)
        model = make_model()
        servers = torch.optim.SGD(model.parameters(), lr=outer.lr, momentum=outer.momentum, nesterov=outer.nesterov)
        for step in range(3):
            parts = []
            for _, _, batches in (part for part in self.samples if part[0] == step):
                local = copy.deepcopy(model)
                local_steps(local, kind(local.parameters(), lr=INNER_LR), batches)
                parts.append(local)
            for index, parameter in enumerate(model.parameters()):
                parameter.grad = torch.stack([parameter.detach() - list(part.parameters())[index]
                                              for part in parts]).mean(0)
            servers.step()
            for index, buffer in enumerate(model.buffers()):
                if buffer.is_floating_point():
                    buffer.copy_(torch.stack([list(part.buffers())[index] for part in parts]).mean(0))
        for name, value in model.state_dict().items():
            if "num_batches" not in name:
                torch.testing.assert_close(ours[name], value, atol=1e-6, rtol=1e-5, msg=name)

    def test_rounds_are_those_of_a_plain_loop(self):
        for make_model, kind in ((make_mlp, torch.optim.AdamW), (make_normed, torch.optim.SGD)):
            with self.subTest(kind.__name__):
                self.new_fake()
                outer = pando.DiLoCo(local_steps=3, lr=0.7, momentum=0.9)
                ours = self.train_rounds(make_model, kind, outer)
                self.assertEqual({len(batches) for _, _, batches in self.samples}, {3})
                self.assertEqual({len(y) for _, _, batches in self.samples for _, y in batches}, {2})
                self.assert_like_a_plain_loop(ours, make_model, kind, outer)

    def test_abandoned_rounds_and_reading_processes_change_no_bit(self):
        expected = self.train_rounds(make_normed)
        for event in ("load", "load:7", "load:9", "give", "give:3", "finish"):
            with self.subTest(event):
                self.new_fake().abandon = {(0, 1): event, (2, 0): event}
                ours = self.train_rounds(make_normed, num_workers=1 if event == "give" else 0)
                self.assertTrue(all(torch.equal(ours[name], value) for name, value in expected.items()))

    def test_outer_steps_that_diverge_one_version_late_are_named(self):
        with self.assertWarnsRegex(UserWarning, "diverge at DiLoCo"):
            self.join_rounds(staleness=1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.join_rounds(staleness=1, outer=pando.DiLoCo(local_steps=3, lr=0.5, momentum=0.3))
            self.join_rounds()

    def test_a_schedule_counts_the_local_steps_of_the_run(self):
        pando.seed(1)
        model = make_mlp()
        inner = torch.optim.SGD(model.parameters(), lr=1.0)
        schedule = torch.optim.lr_scheduler.ExponentialLR(inner, 0.5)
        run = self.join(model, None, inner, schedule=schedule, schedule_every="step", outer=pando.DiLoCo(2), steps=2,
                        global_batch=4, micro_batches=2)
        rates = set()
        for batches in run.rounds():
            with run.round() as part:
                for number, _ in enumerate(batches):
                    rates.add((part.step * 2 + number, inner.param_groups[0]["lr"]))
        self.assertEqual(rates, {(0, 1.0), (1, 0.5), (2, 0.25), (3, 0.125)})

    def test_what_a_round_must_not_do(self):
        def leave_early(run, batches):
            with run.round():
                for _ in batches:
                    break

        def outside(run, batches):
            list(batches)

        def scheduler(run, batches):
            with run.round():
                for _ in batches:
                    self.inner.param_groups[0]["lr"] *= 0.5

        def buffer(run, batches):
            with run.round():
                list(batches)
                self.model.extra.add_(1)

        def make_with_buffer():
            model = make_mlp()
            model.register_buffer("extra", torch.zeros(1))
            return model
        for text, body, make_model in (("after 1 of 3 batches", leave_early, make_mlp),
                                       ("outside of its with block", outside, make_mlp),
                                       ("was changed in a round", scheduler, make_mlp),
                                       ("extra was changed", buffer, make_with_buffer)):
            with self.subTest(text), self.assertRaisesRegex(pando.PandoError, text):
                self.new_fake()
                run = self.join_rounds(make_model)
                for batches in run.rounds():
                    body(run, batches)

    def test_what_does_not_go_together_is_named(self):
        model = make_mlp()
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        for text, optimizer, options in (
                ("one optimizer of torch.optim", pando.SGD(), {}), ("at least 1", inner, dict(outer=pando.DiLoCo(0))),
                ("all in the module", torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1), {}),
                ("replace params=", inner, dict(params=model.parameters())),
                ("equally many samples", inner, dict(global_batch=7)), ("equally many", inner, dict(weighted=True))):
            with self.subTest(text), self.assertRaisesRegex(pando.PandoError, text):
                self.join(model, None, optimizer, **{"outer": pando.DiLoCo(2), **options})
        with self.assertRaisesRegex(pando.PandoError, "go together"):
            self.join(model, None, inner, outer=pando.DiLoCo(2)).loader()
        with self.assertRaisesRegex(pando.PandoError, "go together"):
            self.join(model, None, inner).rounds()
        with self.assertRaisesRegex(pando.PandoError, "goes with"):
            self.join(model, None, inner).round()


if __name__ == "__main__":
    unittest.main()
