"""The public scripts of loops/ beside their plain loops, and with other numbers of processes and deaths.

With PANDO_ALL_LOOPS=1 all of them are tested, and otherwise FEW.
"""
import contextlib
import copy
import io
import os
import unittest
from pathlib import Path

from support import ROOT, F, nn, pando, torch
from test_real import RealCase
from torch.utils.data import TensorDataset

from loops import MAKERS, build
from loops.script import BATCH, COUNT, EPOCHS

FEW = ["word_language_model", "dcgan", "siamese", "actor_critic"]
NAMES = list(MAKERS) if os.environ.get("PANDO_ALL_LOOPS") == "1" else FEW
STEPS = EPOCHS * COUNT // BATCH
SCRIPT = str(Path(__file__).with_name("loops_script.py"))
KILLS = "kill worker at step 4; kill server at step 8; kill worker at step 12; kill scheduler at step 16"
# Measured: 1.1e-6 at most, in U-Net, where RMSprop divides by small gradients.
DIFFERENCE = 1e-5
# Measured: 0.84 of the distance between the smallest and the largest of the plain losses, at most.
NOISE, PLAIN_LOOPS = 1.5, 6


class LoopsTest(RealCase):
    def setUp(self):
        super().setUp()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, ROOT)

    def test_the_whole_set_as_the_batch_gives_the_weights_of_the_plain_loop(self):
        for name in NAMES:
            with self.subTest(name), contextlib.redirect_stdout(io.StringIO()):
                ours, _ = self.build(name, False).train_with_pando(STEPS, COUNT, 1)
                plain, _ = self.build(name, False).train_plainly(STEPS, COUNT)
                for tensor, value in plain.items():
                    # Pando counts steps, and torch counts calls.
                    if not tensor.endswith("num_batches_tracked"):
                        difference = (ours[tensor].double() - value.double()).abs() / value.double().abs().clamp(min=1)
                        self.assertLess(difference.max().item(), DIFFERENCE, tensor)

    def test_the_losses_are_those_of_the_plain_loop_within_noise(self):
        for name in NAMES:
            with self.subTest(name), contextlib.redirect_stdout(io.StringIO()):
                plain = [average(self.build(name, True).train_plainly(EPOCHS, BATCH, seed)[1])
                         for seed in range(PLAIN_LOOPS)]
                script = self.build(name, True)
                # A batch norm sees the whole batch in the plain loop.
                has_norm = any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in script.model.modules())
                _, run = script.train_with_pando(EPOCHS, BATCH, 1 if has_norm else None)
                ours = average([row["loss"] for row in run.metrics() if row["loss"] is not None])
                distance = abs(ours - sum(plain) / len(plain))
                self.assertLess(distance, NOISE * (max(plain) - min(plain)), f"{ours}; plain: {plain}")

    def test_staleness_applies_gradients_of_the_version_before(self):
        model, data, steps, rate = nn.Linear(6, 3), TensorDataset(torch.randn(20, 6), torch.randint(3, (20,))), 7, 0.3
        plain = copy.deepcopy(model)
        run = pando.join(model, data, torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9), epochs=steps,
                         global_batch=20, micro_batches=1, staleness=1)
        for x, y in run.loader():
            with run.micro_batch():
                F.cross_entropy(model(x), y).backward()
        optimizer = torch.optim.SGD(plain.parameters(), lr=rate, momentum=0.9)
        before, (x, y) = copy.deepcopy(plain), data.tensors
        for _ in range(steps):
            gradients = torch.autograd.grad(F.cross_entropy(before(x), y), list(before.parameters()))
            before = copy.deepcopy(plain)
            for parameter, gradient in zip(plain.parameters(), gradients):
                parameter.grad = gradient
            optimizer.step()
        for ours, theirs in zip(model.parameters(), plain.parameters()):
            self.assertLess((ours - theirs).abs().max().item(), DIFFERENCE)

    def test_the_weights_depend_on_no_number_of_processes_and_no_death(self):
        # With --preload a killed worker is back while the run, which lasts a second, goes on.
        sizes = ((["--workers", "1", "--servers", "1"], 0), (["--workers", "2", "--servers", "2"], 2),
                 (["--workers", "3", "--servers", "2", "--snapshot-every", "5", "--preload", "--chaos", KILLS], 1))
        for name in NAMES:
            with self.subTest(name):
                results = set()
                for number, (flags, loader_workers) in enumerate(sizes):
                    summary, _ = self.run_program(f"{name}-{number}", flags, [name, loader_workers], script=SCRIPT)
                    results.add((summary["weights_hash"], summary["steps"], self.read_best()))
                self.assertEqual(len(results), 1, results)

    def build(self, name, draws):
        Path("best.pt").unlink(missing_ok=True)
        return build(name, draws, STEPS)

    def read_best(self):
        """The script's own best checkpoint as text, which this removes. None: it has written none."""
        path = self.folder / "best.pt"
        if not path.exists():
            return None
        text = str(torch.load(path))
        path.unlink()
        return text


def average(losses):
    """The mean of the second half, which has each turn of the adversarial networks."""
    return sum(losses[-STEPS // 2:]) / len(losses[-STEPS // 2:])


if __name__ == "__main__":
    unittest.main()
