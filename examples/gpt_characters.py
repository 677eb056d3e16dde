"""A GPT on the characters of a text: pando run --workers 4 --servers 2 examples/gpt_characters.py FILE

The last tenth of the text is the test set. In the run's folder gpt-best.pt has the weights with the lowest test loss
so far, and what they write.
"""
import argparse
import math
import os
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
train_count = len(codes) * 9 // 10


class Windows(torch.utils.data.Dataset):
    """Pairs of characters [context] and of those that follow them."""

    def __init__(self, text):
        self.codes = text

    def __len__(self):
        return (len(self.codes) - 1) // args.context

    def __getitem__(self, index):
        first = index * args.context
        return self.codes[first:first + args.context], self.codes[first + 1:first + args.context + 1]


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


def loss_of(x, y, reduction="mean"):
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction=reduction)


def write(count):
    """Returns characters that the model draws, after a line's end."""
    written = [alphabet.index("\n")] * args.context
    for _ in range(count):
        logits = model(torch.tensor([written[-args.context:]]))[0, -1]
        written.append(int(torch.multinomial(logits.softmax(0), 1)))
    return "".join(alphabet[code] for code in written[args.context:])


def keep_best(results):
    """Keeps the weights, and a sample, if no earlier version has a lower loss. The file says which loss it is."""
    best = Path(run.facts.run_dir, "gpt-best.pt")
    if best.exists() and torch.load(best)["loss"] <= results.loss:
        return
    kept = dict(model=model.state_dict(), step=results.version, loss=results.loss, sample=write(200))
    torch.save(kept, f"{best}.{run.rank}")
    os.replace(f"{best}.{run.rank}", best)
    print(f"loss {results.loss:.3f}: {kept['sample']!r}")


def rate_factor(step):
    """A warm-up of 100 steps, then a cosine down to a tenth."""
    return min((step + 1) / 100, 0.55 + 0.45 * math.cos(math.pi * min(1, step / args.steps)))


pando.seed(1)
model = GPT()
decayed = [value for value in model.parameters() if value.dim() > 1]
others = [value for value in model.parameters() if value.dim() <= 1]
optimizer = torch.optim.AdamW([dict(params=decayed, weight_decay=0.1), dict(params=others, weight_decay=0.0)],
                              lr=1e-3, betas=(0.9, 0.95))
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate_factor)
run = pando.join(model, Windows(codes[:train_count]), optimizer, schedule=schedule, schedule_every="step",
                 steps=args.steps, global_batch=32, micro_batches=8, clip_norm=1.0, evaluate_every_steps=250)
# A batch's sum over its characters becomes a mean over characters, because results are shown per sample.
run.evaluate_with(Windows(codes[train_count:]), lambda x, y: dict(loss_sum=loss_of(x, y, "sum") / args.context))
run.on_evaluation(keep_best)
for x, y in run.loader():
    with run.micro_batch() as mb:
        loss = loss_of(x, y)
        loss.backward()
        mb.log(loss=loss)
run.save("gpt.safetensors")
