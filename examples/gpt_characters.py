"""A GPT on the characters of a text: pando run --workers 4 --servers 2 examples/gpt_characters.py FILE"""
import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import pando_train as pando

parser = argparse.ArgumentParser()
parser.add_argument("text", type=Path)
parser.add_argument("--steps", type=int, default=2000)
parser.add_argument("--context", type=int, default=64)
parser.add_argument("--width", type=int, default=128)
args = parser.parse_args()

text = args.text.read_text(encoding="utf-8")
alphabet = sorted(set(text))
codes = torch.tensor([alphabet.index(character) for character in text])


class Windows(torch.utils.data.Dataset):
    """Pairs of characters [context] and of those that follow them."""

    def __len__(self):
        return (len(codes) - 1) // args.context

    def __getitem__(self, index):
        first = index * args.context
        return codes[first:first + args.context], codes[first + 1:first + args.context + 1]


class GPT(nn.Module):
    """Characters [batch, context] to logits [batch, context, alphabet]. The embedding is the output layer too."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(len(alphabet), args.width)
        self.position = nn.Parameter(0.02 * torch.randn(args.context, args.width))
        layer = nn.TransformerEncoderLayer(args.width, 4, 4 * args.width, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 4, nn.LayerNorm(args.width))
        self.register_buffer("mask", torch.full((args.context, args.context), float("-inf")).triu(1))
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, x):
        return self.blocks(self.embedding(x) + self.position, self.mask) @ self.embedding.weight.t()


pando.seed(1)
model = GPT()
run = pando.join(model, Windows(), pando.AdamW(lr=1e-3), schedule=pando.CosineAnnealingLR(warmup_steps=100),
                 steps=args.steps, global_batch=32, micro_batches=8, clip_norm=1.0)
for x, y in run.loader():
    with run.micro_batch() as mb:
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        mb.log(loss=loss)
run.save("gpt.safetensors")
