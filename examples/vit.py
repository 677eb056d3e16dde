"""A vision transformer on MNIST's four .gz files: pando run --workers 4 --servers 2 examples/vit.py FOLDER [STEPS]"""
import gzip
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import pando_train as pando

PICTURE, PATCH = 28, 7  # pixels of a side


class ViT(nn.Module):
    """Pictures [batch, 1, 28, 28] to logits [batch, 10]."""

    def __init__(self, width=64, depth=4, heads=4, dropout=0.1):
        super().__init__()
        self.patches = nn.Conv2d(1, width, PATCH, stride=PATCH)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(0.02 * torch.randn(1, 1 + (PICTURE // PATCH) ** 2, width))
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, depth)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 10))

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)  # [batch, patches, width]
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.position
        return self.head(self.blocks(x)[:, 0])


class Mnist(torch.utils.data.Dataset):
    """Pictures [1, 28, 28], moved by up to `shift` pixels, and their digits."""

    def __init__(self, folder, prefix, shift):
        x, y = (gzip.decompress(path.read_bytes()) for path in sorted(Path(folder).glob(f"{prefix}-*-ubyte.gz")))
        self.x = torch.frombuffer(bytearray(x[16:]), dtype=torch.uint8).view(-1, 1, PICTURE, PICTURE)
        self.y, self.shift = list(y[8:]), shift

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i].roll(torch.randint(-self.shift, self.shift + 1, (2,)).tolist(), (1, 2)) / 255, self.y[i]


if __name__ == "__main__":
    pando.seed(1)
    model = ViT()
    run = pando.join(model, Mnist(sys.argv[1], "train", 2), pando.AdamW(lr=1e-3), clip_norm=1.0,
                     schedule=pando.CosineAnnealingLR(warmup_steps=100), steps=int((sys.argv + ["2000"])[2]))
    run.evaluate_with(Mnist(sys.argv[1], "t10k", 0), lambda x, y: dict(correct=(model(x).argmax(1) == y).sum()))
    for x, y in run.loader(num_workers=2):
        with run.micro_batch() as mb:
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            mb.log(loss=loss)
    run.save("vit.safetensors")
