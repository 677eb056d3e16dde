"""Training with the fake library: bits, equality to torch.optim, abandoned work."""
import copy
import copyreg
import io
import os
import pickle
import subprocess
import sys
import unittest
from unittest import mock

from support import ROOT, FakeCase, Points, Result, make_mlp, nn, pando, torch, without_dynamo, F


def make_tied():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Linear(4, 4, bias=False)
            self.unused = nn.Linear(2, 2)
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
            self.head = nn.Linear(4, 4)
            self.head.weight = self.embedding.weight
            self.frozen = nn.Linear(4, 3)
            self.frozen.requires_grad_(False)

        def forward(self, x):
            x = (x @ self.head.weight.t())[:, None]
            x = self.attention(x, x, x, need_weights=False)[0][:, 0]
            return self.frozen(self.head(self.embedding(x)))
    return Tied()


def make_norm():
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))


def train_plain(model, data, optimizer, batches):
    """The usual loop."""
    for batch in batches:
        x = torch.stack([data[i][0] for i in batch])
        y = torch.stack([data[i][1] for i in batch])
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


class Scaled(nn.Module):
    """A layer that says itself what a pickle of it has."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x * self.scale

    def __getstate__(self):
        return {**self.__dict__, "is_copy": True}


class TrainingTest(FakeCase):
    def test_a_run_equals_torch_in_double_precision(self):
        for make, ours, theirs in ((make_mlp, pando.SGD(lr=0.1, momentum=0.9),
                                    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
                                   (make_tied, pando.Adam(lr=0.01), lambda p: torch.optim.Adam(p, lr=0.01)),
                                   (make_tied, pando.AdamW(lr=0.01), lambda p: torch.optim.AdamW(p, lr=0.01))):
            with self.subTest(make=make.__name__, optimizer=ours.TYPE):
                self.new_fake()
                result = self.train(make, optimizer=ours, steps=6)
                batches = [sum((w.samples for w in self.fake._works(step)), ()) for step in range(6)]
                pando.seed(1)
                model = make()
                first = {name: value.clone() for name, value in model.state_dict().items()}
                model.double()
                data = Points()
                data.x = data.x.double()
                trained = [p for name, p in model.named_parameters() if "unused" not in name and p.requires_grad]
                train_plain(model, data, theirs(trained), batches)
                for name, value in model.named_parameters():
                    change, ours_change = value - first[name], result.tensors[name] - first[name]
                    if "unused" not in name and value.requires_grad:
                        difference = (change - ours_change).norm() / change.norm()
                        self.assertLess(difference, 1e-3 if ours.TYPE == "sgd" else 3e-3, name)

    def test_weights_of_micro_batches_make_the_mean_over_all_samples(self):
        weights = torch.tensor([0.0, 1.0, 3.5])  # micro-batches of one sample: those of class 0 weigh nothing
        bits = set()
        for skips_nothing in (True, False):
            self.new_fake()
            pando.seed(1)
            model = make_mlp()
            expected = copy.deepcopy(model).double()
            run = self.join(model, optimizer=pando.SGD(lr=0.1), micro_batches=8, weighted=True)
            for x, y in run.loader():
                with run.micro_batch(weight=weights[y].sum()) as mb:
                    if skips_nothing or weights[y].sum() > 0:
                        loss = F.cross_entropy(model(x), y, weight=weights)
                        loss.backward()
                        mb.log(loss=loss)
            bits.add(Result(model, self.fake).bits()["0.weight"])
            self.assertEqual(self.fake.raised, [])
            data, optimizer = Points(), torch.optim.SGD(expected.parameters(), lr=0.1)
            for step in range(3):
                batch = list(sum((work.samples for work in self.fake._works(step)), ()))
                optimizer.zero_grad()
                F.cross_entropy(expected(data.x[batch].double()), data.y[batch], weight=weights.double()).backward()
                optimizer.step()
            for value, like in zip(model.parameters(), expected.parameters()):
                self.assertTrue(torch.allclose(value.double(), like, rtol=1e-5, atol=1e-7))
            missing = pando._library.NOT_LOGGED
            self.assertIn([0.0 if skips_nothing else missing, missing, 0.0], [sums for _, _, sums in self.fake.losses])
        self.assertEqual(len(bits), 1)

    def test_abandoned_work_and_rollbacks_change_no_bit(self):
        for make in (make_mlp, make_tied, make_norm):
            self.new_fake()
            expected = self.train(lambda: nn.Sequential(make(), nn.Dropout(0.1))).bits()
            tensors = len(self.fake.tensors)
            events = [f"{event}:{n}" for event in ("load", "give") for n in range(1, tensors + 1)] + ["finish"]
            for event in events:
                with self.subTest(make=make.__name__, event=event):
                    self.new_fake().abandon = {(0, 1): event, (1, 0): event, (2, 3): event}
                    self.fake.rollback = {2: 1}
                    self.assertEqual(self.train(lambda: nn.Sequential(make(), nn.Dropout(0.1))).bits(), expected)

    def test_calls_that_return_early_are_repeated(self):
        expected = self.train().bits()
        self.new_fake().again = 2
        self.assertEqual(self.train().bits(), expected)

    def test_gradients_leave_during_backward_and_parameters_are_awaited_layer_by_layer(self):
        self.train(make_tied)
        calls = self.fake.trace
        last = len(calls) - calls[::-1].index(("give", "head.bias")) - 1
        names = [name for call, name in calls[last:] if call == "give"]
        self.assertEqual(names[0], "head.bias")
        self.assertEqual(names[-1], "embedding.weight")
        loads = [name for call, name in calls[:last] if call == "load"][-8:]
        self.assertLess(loads.index("embedding.weight"), loads.index("attention.in_proj_weight"))
        self.assertEqual(self.fake.names.count("embedding.weight"), 1)
        self.assertFalse({"head.weight", "frozen.weight"} & set(self.fake.names))

    def test_a_parameter_that_a_later_forward_reads_earlier_is_awaited(self):
        class Moody(nn.Module):
            def __init__(self, is_moody):
                super().__init__()
                self.layers = nn.ModuleList([nn.Linear(4, 4, False), make_mlp()])
                self.is_moody, self.calls = is_moody, 0

            def forward(self, x):
                self.calls += 1
                scale = self.layers[0].weight.data.abs().sum() if self.is_moody and self.calls > 2 else None
                x = self.layers[0](self.layers[1][0](x)[:, :4])
                return self.layers[1][3](x.repeat(1, 2)) * (self.layers[0].weight.detach().abs().sum()
                                                            if scale is None else scale)
        with without_dynamo():
            expected = self.train(lambda: Moody(False)).bits()
            self.new_fake()
            self.assertEqual(self.train(lambda: Moody(True)).bits(), expected)

    def test_attention_in_no_grad_gives_the_same_bits_in_every_micro_batch(self):
        class Frozen(nn.Module):
            def __init__(self):
                super().__init__()
                encoder = nn.TransformerEncoderLayer(64, 4, 64, batch_first=True)
                self.encoder, self.head = encoder.eval().requires_grad_(False), nn.Linear(64, 3)

            def forward(self, x):
                with torch.no_grad():
                    x = self.encoder(x[:, None].repeat(1, 9, 16))
                outputs[self.training].add(x.numpy().tobytes())
                return self.head(x[:, 0])
        outputs = {False: set(), True: set()}
        data = Points(24)
        data.x[:] = data.x[0]

        def evaluate(run, model):
            run.evaluate_with(data, lambda x, y: dict(sum=model(x).sum()), batch_size=2)
        with without_dynamo():
            self.train(Frozen, data=data, evaluate=evaluate, evaluate_every_steps=1)
        self.assertEqual(len(outputs[True]), 1)
        self.assertEqual(len(outputs[False]), 1)

    def test_an_evaluation_has_no_copies_of_autocast(self):
        def evaluate(run, model):
            run.evaluate_with(Points(11), lambda x, y: dict(sum=model(x).float().sum()), batch_size=11)

        def loss(x, y):
            return F.cross_entropy(x.float(), y)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.train(evaluate=evaluate, evaluate_every_steps=1, loss=loss)
        self.assertEqual(len(self.fake.evaluations), 3)
        for version, sums in self.fake.evaluations:
            plain = make_mlp()
            plain.load_state_dict(dict(zip(self.fake.names, self.fake.versions[version])))
            with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
                self.assertEqual(sums["sum"], plain(Points(11).x).float().sum().item())

    def test_batch_norm_has_the_mean_of_the_micro_batches_statistics(self):
        result = self.train(make_norm, data=Points(16), steps=2)
        pando.seed(1)
        model = make_norm()
        data = Points(16)
        means = []
        for work in self.fake._works(0):
            x = torch.stack([data[i][0] for i in work.samples])
            means.append(model[0](x).mean(0))
        first = 0.1 * torch.stack(means).mean(0)
        self.assertTrue(torch.allclose(self.fake.versions[1][2 + 2], first.detach(), rtol=1e-5))
        self.assertEqual(int(result.tensors["1.num_batches_tracked"]), 2)
        self.assertEqual(self.run_.table.module[1].momentum, 0.1)

    def test_a_norm_in_eval_keeps_its_statistics(self):
        def make():
            model = make_norm()
            model[1].running_mean.fill_(0.5)
            model[1].eval()
            return model
        result = self.train(make)
        self.assertTrue(torch.allclose(result.tensors["1.running_mean"], torch.full((6,), 0.5), rtol=1e-6))

    def test_between_micro_batches_the_module_is_of_one_version(self):
        def make():  # the second norm is called now and then
            return Moody(nn.Linear(4, 6), nn.BatchNorm1d(6, momentum=0.3), nn.BatchNorm1d(6), nn.Linear(6, 3))

        class Moody(nn.Sequential):
            def forward(self, x):
                x = self[1](self[0](x))
                return self[3](self[2](x) if fake.step != 1 else x)
        fake = self.fake
        fake.step = 0
        pando.seed(1)
        model = make()
        run = self.join(model, micro_batches=2, evaluate_every_steps=1)
        run.evaluate_with(Points(5), lambda x, y: dict(sum=model.train(fake.step > 0)(x).sum()))  # leaves eval()
        self.fake.abandon = {(2, 1): "give:2"}
        for x, y in run.loader():
            with run.micro_batch() as mb:
                F.cross_entropy(model(x), y).backward()
                self.assertEqual([part.momentum for part in (model[1], model[2])], [0.3, 0.1])
            version = dict(zip(self.fake.names, self.fake.versions[mb.step]))
            state = {name: value.clone() for name, value in model.state_dict().items()}
            if mb.step != 1:  # the count of a norm that this step does not call
                self.assertEqual({state.pop(f"{n}.num_batches_tracked").item() for n in (1, 2)}, {mb.step})
            self.assertEqual([name for name, value in version.items() if not torch.equal(state[name], value)], [])
            if mb.step == 0:
                model(x * 100)  # as a validation that forgets eval(): it does not last
                self.assertNotEqual(state["1.running_var"].tolist(), model[1].running_var.tolist())
        self.assertEqual(self.fake.raised, [])

    def test_copies_in_the_loop_are_plain_modules(self):
        def copy_all(model):
            buffer = io.BytesIO()
            torch.save(model, buffer)
            buffer.seek(0)
            loaded = torch.load(buffer, **({"weights_only": False} if torch.__version__ >= "2" else {}))
            average = torch.optim.swa_utils.AveragedModel(model)
            average.update_parameters(model)
            return [copy.deepcopy(model), loaded, average.module, pickle.loads(pickle.dumps(model))]

        def by_user(*_):
            calls.append(1)

        def make():
            model = nn.Sequential(make_norm(), nn.Sequential(nn.Linear(3, 3), Scaled()))
            model[0][1].momentum = 0.3
            model[1].register_forward_pre_hook(by_user)
            return model
        calls = []
        pickled = mock.patch.object(sys.modules[__name__], "by_user", by_user, create=True)
        by_user.__qualname__ = "by_user"
        pickled.start()
        self.addCleanup(pickled.stop)
        expected = self.train(make).bits()
        self.new_fake()
        before = dict(copyreg.dispatch_table)
        pando.seed(1)
        model = make()
        for x, y in self.join(model).loader():
            with self.run_.micro_batch():
                F.cross_entropy(model(x), y).backward()
                copies = copy_all(model)
            for copied in copies + copy_all(model):
                parts = list(copied.modules())
                self.assertEqual(sum(len(part._forward_pre_hooks) + len(part._forward_hooks) for part in parts), 1)
                self.assertEqual(copied[0][1].momentum, 0.3)
                calls.clear()
                self.assertTrue(torch.equal(copied.eval()(x), model.eval()(x)))
                self.assertEqual(len(calls), 2)
                F.cross_entropy(copied.train()(x), y).backward()
                model.train()
        self.assertEqual(Result(model, self.fake).bits(), expected)
        self.assertEqual(copyreg.dispatch_table, before)

    def test_copies_of_a_module_of_torch_fx_do_nothing_of_the_run(self):
        pando.seed(1)
        model = torch.fx.symbolic_trace(make_mlp())
        for x, y in self.join(model).loader():
            with self.run_.micro_batch():
                F.cross_entropy(model(x), y).backward()
            for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
                F.cross_entropy(copied(x), y).backward()
                self.assertTrue(torch.equal(copied(x), model(x)))
        self.assertEqual(self.fake.step, 3)

    def test_a_norm_counts_the_steps_in_train(self):
        for frozen_from, expected in ((0, 4), (2, 6), (5, 9)):
            pando.seed(1)
            model = make_norm()
            model[1].num_batches_tracked.fill_(4)
            self.new_fake()
            for x, y in self.join(model, steps=5).loader():
                model[1].train(self.fake.step < frozen_from)
                with self.run_.micro_batch():
                    F.cross_entropy(model(x), y).backward()
                model.eval()  # as a validation
            self.assertEqual(int(model[1].num_batches_tracked), expected)

    def test_checkpointing_gives_the_same_bits(self):
        from torch.utils.checkpoint import checkpoint

        class Checkpointed(nn.Sequential):
            def forward(self, x):
                return checkpoint(super().forward, x, use_reentrant=False)
        expected = self.train(lambda: nn.Sequential(*make_norm(), nn.Dropout(0.3))).bits()
        for event in (None, "load:2", "give:1", "give:3"):
            self.new_fake().abandon = {(1, 1): event}
            bits = self.train(lambda: Checkpointed(*make_norm(), nn.Dropout(0.3))).bits()
            self.assertEqual(bits, expected)

    def test_groups_have_their_own_rate_and_decay(self):
        pando.seed(1)
        model = make_mlp()
        self.join(model, optimizer=pando.SGD(lr=0.1, weight_decay=0.5), params=[
            dict(params=model[0].parameters(), lr=0.01), dict(params=model[3].parameters(), weight_decay=0.0)])
        entries = {entry.name: entry for entry in self.run_.table.entries}
        self.assertAlmostEqual(entries["0.bias"].lr_factor, 0.1)
        self.assertLess(entries["0.bias"].weight_decay, 0)
        with self.assertRaisesRegex(pando.PandoError, "has lr 0: give the optimizer the highest"):
            self.join(model, optimizer=pando.SGD(lr=0.0), params=[dict(params=model.parameters(), lr=0.1)])
        self.assertEqual((entries["3.bias"].lr_factor, entries["3.bias"].weight_decay), (1.0, 0.0))
        for params in (model.parameters(), list(model.parameters()), model.named_parameters(), iter(model.parameters()),
                       (dict(params=list(part.named_parameters()), name=name) for name, part in model.named_children()),
                       [dict(params={parameter}) for parameter in model.parameters()]):
            self.join(model, params=params)
            self.assertEqual({entry.lr_factor for entry in self.run_.table.entries}, {1.0})

    def test_an_undefined_gradient_is_none(self):
        class First(torch.autograd.Function):
            @staticmethod
            def forward(_, x, scale):
                return x * 1

            @staticmethod
            def backward(_, gradient):
                return gradient, None

        class Scaled(nn.Linear):
            def __init__(self):
                super().__init__(4, 3)
                self.scale = nn.Parameter(torch.ones(1))

            def forward(self, x):
                return First.apply(super().forward(x), self.scale)
        self.assertEqual(self.train(Scaled).tensors["scale"].item(), 1.0)
        self.assertNotIn(("give", "scale"), self.fake.trace)

    def test_other_defaults_of_torch_change_no_bit(self):
        def make():
            return nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 4, 2), nn.Flatten(), nn.Linear(4, 3)) \
                .float().to(memory_format=torch.channels_last)
        data = Points()
        expected = self.train(make, data=data).bits()

        def loss(x, y):
            torch.set_default_dtype(torch.float64)
            return F.cross_entropy(x, y)
        self.addCleanup(torch.set_default_dtype, torch.float32)
        self.new_fake()
        self.assertEqual(self.train(make, data=data, loss=loss).bits(), expected)

    def test_channels_last_gives_the_same_gradients(self):
        def make():
            return nn.Sequential(nn.Unflatten(1, (2, 4, 4)), nn.Conv2d(2, 64, 3), nn.Flatten(), nn.Linear(256, 3))
        data = Points(features=32)
        expected = self.train(make, data=data).tensors
        self.new_fake()
        last = self.train(lambda: make().to(memory_format=torch.channels_last), data=data).tensors
        for name, value in expected.items():
            self.assertTrue(torch.allclose(last[name], value, rtol=1e-4, atol=1e-6), name)

    def test_autocast_and_channels_last_train(self):
        def make():
            return nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 4, 2), nn.Flatten(), nn.Linear(4, 3)) \
                .to(memory_format=torch.channels_last)

        def loss(x, y):
            return F.cross_entropy(x.float(), y)
        expected = self.train(make, loss=loss).bits()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.new_fake()
            bits = self.train(make, loss=loss).bits()
        self.assertNotEqual(bits, expected)

    def test_the_final_weights_are_saved_with_torch_names(self):
        result = self.train(make_norm)
        path = f"{self.folder}/saved.safetensors"
        self.run_.save(path)
        from pando_train._weights import read_safetensors
        saved, metadata = read_safetensors(path)
        self.assertEqual(metadata, {"format": "pt"})
        self.assertEqual(list(saved), list(result.tensors))
        self.assertTrue(all(torch.equal(saved[name], value) for name, value in result.tensors.items()))


@unittest.skipUnless(hasattr(torch, "compile"), "torch.compile needs torch 2")
class CompileTest(FakeCase):
    def test_a_compiled_module_has_the_same_names_and_trains(self):
        expected = self.train(make_norm, data=Points(16)).tensors
        names = self.fake.names
        for compile_ in (lambda m: torch.compile(m, backend="aot_eager"), compile_in_place):
            self.new_fake().abandon = {(1, 1): "give:2", (0, 2): "load:3"}
            compiled = self.train(lambda: compile_(make_norm()), data=Points(16)).tensors
            self.assertEqual(self.fake.names, names)
            for value, like in zip(compiled.values(), expected.values()):
                self.assertTrue(torch.allclose(value, like, rtol=1e-4))

    def test_a_norm_that_a_compiled_module_does_not_call_keeps_its_statistics(self):
        class Half(nn.Module):
            def __init__(self):
                super().__init__()
                self.used, self.unused, self.head = nn.BatchNorm1d(4), nn.BatchNorm1d(4), nn.Linear(4, 3)
                self.unused.running_mean.fill_(0.5)

            def forward(self, x):
                return self.head(self.used(x))
        for compile_ in (compile_in_place, lambda m: m):
            self.new_fake()
            values = self.train(lambda: compile_(Half())).tensors
            self.assertTrue(torch.allclose(values["unused.running_mean"], torch.full((4,), 0.5), rtol=1e-6))
            self.assertGreater(values["used.running_mean"].abs().sum(), 0)

    def test_an_import_of_dynamo_is_no_use_of_it(self):
        code = """if True:
            import torch._dynamo
            from pando_train._hooks import uses_compile
            found = [uses_compile()]
            kept = torch.compile(torch.nn.Linear(2, 2)), found.append(uses_compile())
            print(found)"""
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False,
                              env=environment)
        self.assertEqual(done.stdout, "[False, True]\n", done.stderr)

    def test_a_module_compiled_after_join_trains(self):
        pando.seed(1)
        model = make_norm()
        run = self.join(model)
        compiled = torch.compile(model, backend="aot_eager")
        for x, y in run.loader():
            with run.micro_batch():
                F.cross_entropy(compiled(x), y).backward()
        expected = {name: value.clone() for name, value in model.state_dict().items()}
        self.new_fake()
        for name, value in self.train(make_norm).tensors.items():
            self.assertTrue(torch.allclose(value, expected[name], rtol=1e-3, atol=1e-5), name)


def compile_in_place(module):
    module.compile(backend="aot_eager")
    return module


if __name__ == "__main__":
    unittest.main()
