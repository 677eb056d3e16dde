"""A DCGAN on MNIST: pando run --workers 4 --servers 2 examples/dcgan_mnist.py --data FOLDER

FOLDER has train-images-idx3-ubyte.gz, as of `pando data fetch mnist`. After each epoch dcgan-NUMBER.pt has pictures
that the generator draws from fixed noise, [64, 1, 28, 28] from -1 to 1.
"""
import argparse
import gzip
import os
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import pando_train as pando

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="data/mnist")
parser.add_argument("--epochs", type=float, default=10)
parser.add_argument("--batch", type=int, default=128)
parser.add_argument("--noise", type=int, default=64)
parser.add_argument("--width", type=int, default=32)
args = parser.parse_args()


class Digits(torch.utils.data.Dataset):
    """Pictures [1, 28, 28] from -1 to 1."""

    def __init__(self):
        data = gzip.decompress(Path(args.data, "train-images-idx3-ubyte.gz").read_bytes())
        self.pixels = torch.frombuffer(bytearray(data[16:]), dtype=torch.uint8).view(-1, 1, 28, 28)

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, index):
        return self.pixels[index] / 127.5 - 1


def make_generator():
    """Noise [batch, noise] to pictures [batch, 1, 28, 28]."""
    width = args.width
    return nn.Sequential(nn.Linear(args.noise, 2 * width * 49, bias=False), nn.Unflatten(1, (2 * width, 7, 7)),
                         nn.BatchNorm2d(2 * width), nn.ReLU(),
                         nn.ConvTranspose2d(2 * width, width, 4, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                         nn.ConvTranspose2d(width, 1, 4, 2, 1), nn.Tanh())


def make_discriminator():
    """Pictures to one number: positive for a real picture."""
    width = args.width
    return nn.Sequential(nn.Conv2d(1, width, 4, 2, 1), nn.LeakyReLU(0.2),
                         nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2),
                         nn.Flatten(), nn.Linear(2 * width * 49, 1))


def judge(pictures, label):
    """Returns the discriminator's loss if it should say `label`."""
    output = D(pictures)
    return F.binary_cross_entropy_with_logits(output, torch.full_like(output, label))


def draw(results):
    path = f"dcgan-{results.epoch:.0f}.pt"
    torch.save(G(fixed_noise), f"{path}.{run.rank}")
    os.replace(f"{path}.{run.rank}", path)


pando.seed(1)
G, D = make_generator(), make_discriminator()
fixed_noise = torch.randn(64, args.noise)
optimizers = dict(D=torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999)),
                  G=torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999)))
# A step trains one of both networks, so that an epoch of both has twice the steps.
run = pando.join(nn.ModuleDict(dict(G=G, D=D)), Digits(), optimizers, turns=["D", "G"], epochs=2 * args.epochs,
                 evaluate_every_epochs=2, global_batch=args.batch, micro_batches=4)
run.on_evaluation(draw)
for real in run.loader():
    with run.micro_batch() as mb:
        fake = G(torch.randn(len(real), args.noise))
        if run.turn == "D":
            loss = judge(real, 1.0) + judge(fake.detach(), 0.0)
            loss.backward()
            mb.log(d_loss=loss)
        else:
            loss = judge(fake, 1.0)
            loss.backward()
            mb.log(g_loss=loss)
run.save("dcgan.safetensors")
