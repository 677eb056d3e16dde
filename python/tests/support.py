"""The things that the tests share: small models, data and a run with the fake library."""
import os
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "python" / "tests"), str(ROOT / "examples")]

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import pando_train as pando  # noqa: E402
from pando_train import _run  # noqa: E402
from fake_library import FakeRun  # noqa: E402


class Points(torch.utils.data.Dataset):
    """Samples x [features], y: a class, drawn from their index. With noise each draw of x differs."""

    def __init__(self, count=24, features=4, classes=3, noise=0.0):
        generator = torch.Generator().manual_seed(7)
        self.x = torch.randn(count, features, generator=generator)
        self.y = torch.randint(classes, (count,), generator=generator)
        self.noise = noise

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        x = self.x[index]
        return (x + self.noise * torch.randn(x.shape) if self.noise else x), self.y[index]


def make_mlp(dropout=0.0):
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 3))


def without_dynamo():
    """With torch.compile in use every parameter is loaded before the forward, and an earlier test may have used it."""
    return mock.patch("pando_train._hooks.sys", SimpleNamespace(modules={}, _getframe=sys._getframe))


class Result:
    """A finished run: final tensors by name, and the fake library."""

    def __init__(self, model, fake):
        self.fake = fake
        self.tensors = {name: value.clone() for name, value in model.state_dict().items()}

    def bits(self):
        return {name: value.numpy().tobytes() for name, value in self.tensors.items()}


class FakeCase(unittest.TestCase):
    """Tests with the fake library."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        for patch in (mock.patch.dict(os.environ, {"PANDO_SCHEDULER": "fake"}),
                      mock.patch("pando_train._library.load_library", lambda: self.fake.library)):
            patch.start()
            self.addCleanup(patch.stop)
        self.new_fake()

    def new_fake(self):
        self.fake = FakeRun(self.folder)
        return self.fake

    def join(self, model, data=None, optimizer=None, **options):
        options = {"steps": 3, "global_batch": 8, "micro_batches": 4, **options}
        data = Points() if data is None else data
        _run._has_joined = False  # each fake run stands for a script
        self.run_ = pando.join(model, data, optimizer or pando.SGD(lr=0.1, momentum=0.9), **options)
        return self.run_

    def train(self, make_model=make_mlp, data=None, optimizer=None, loss=F.cross_entropy, evaluate=None,
              num_workers=0, **options):
        """A whole run from seed 1."""
        pando.seed(1)
        model = make_model()
        run = self.join(model, data, optimizer, **options)
        if evaluate:
            evaluate(run, model)
        for x, y in run.loader(num_workers=num_workers):
            with run.micro_batch() as mb:
                value = loss(model(x), y)
                value.backward()
                mb.log(loss=value)
        self.assertEqual(self.fake.raised, [])
        return Result(model, self.fake)

    def assert_fails(self, text, body, make_model=make_mlp, **options):
        """Training with this body ends the run with an error that has the text."""
        pando.seed(1)
        model = make_model()
        with self.assertRaisesRegex(pando.PandoError, text):
            run = self.join(model, **options)
            for batch in run.loader():
                body(run, model, batch)
        self.assertRegex(self.fake.failure or "", text)
        self.assertTrue(self.fake.is_closed)
