"""Scripts that train on sequences of tokens."""
import math
import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler

from .script import Samples, Script

TOKENS, WIDTH = 12, 16


def draw_tokens(index, generator, length):
    """A sequence that counts in steps of 1 or 2, with mistakes."""
    tokens = (index + (1 + index % 2) * torch.arange(length)) % TOKENS
    wrong = torch.rand(length, generator=generator) < 0.1
    return torch.where(wrong, torch.randint(TOKENS, (length,), generator=generator), tokens)


class LanguageModel(nn.Module):
    """Embedding, LSTM, decoder with the embedding's weight."""

    def __init__(self, dropout):
        super().__init__()
        self.drop, self.encoder = nn.Dropout(dropout), nn.Embedding(TOKENS, WIDTH)
        self.rnn, self.decoder = nn.LSTM(WIDTH, WIDTH, 2, dropout=dropout), nn.Linear(WIDTH, TOKENS)
        self.decoder.weight = self.encoder.weight

    def forward(self, tokens, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(tokens)), hidden)
        return self.decoder(self.drop(output)).view(-1, TOKENS), hidden

    def init_hidden(self, count):
        weight = next(self.parameters())
        return weight.new_zeros(2, count, WIDTH), weight.new_zeros(2, count, WIDTH)


def word_language_model(draws, steps):
    """pytorch/examples, word_language_model: the hidden state is carried along each sequence, cut in three parts."""
    model, criterion, seen, bptt = LanguageModel(0.2 * draws), nn.CrossEntropyLoss(), [], 6
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)

    def body(batch, mb, _):
        source = batch.t()
        hidden, total_loss = model.init_hidden(source.size(1)), 0.0
        optimizer.zero_grad()
        for i in range(0, 18, bptt):
            hidden = tuple(part.detach() for part in hidden)
            output, hidden = model(source[i:i + bptt], hidden)
            loss = criterion(output, source[i + 1:i + 1 + bptt].reshape(-1)) / 3
            loss.backward()
            total_loss += loss.item()
        seen.append(total_loss)
        mb.log(loss=total_loss)
        print(f"loss {sum(seen) / len(seen):5.2f} | ppl {math.exp(total_loss):8.2f}")

    return Script(model, Samples(lambda i, g: draw_tokens(i, g, 19)), optimizer, body, clip_norm=0.25)


def masked_lm(draws, steps):
    """BERT: masked tokens, whose number differs between the samples."""
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.1 * draws, batch_first=True)
    model = nn.Sequential(nn.Embedding(TOKENS + 1, WIDTH), nn.TransformerEncoder(layer, 1), nn.Linear(WIDTH, TOKENS))
    # Not AdamW: the gradient of the bias of the keys consists of rounding errors, which Adam scales up.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)

    def make(index, generator):
        tokens = draw_tokens(index, generator, 8)
        masked = torch.rand(8, generator=generator) < 0.15
        return torch.where(masked, TOKENS, tokens), torch.where(masked, tokens, -100)

    def body(batch, mb, _):
        input_ids, labels = batch
        optimizer.zero_grad()
        loss = F.cross_entropy(model(input_ids).view(-1, TOKENS), labels.view(-1))
        loss.backward()
        mb.log(loss=loss)

    return Script(model, Samples(make), optimizer, body, weigh=lambda batch: (batch[1] != -100).sum())


class Attention(nn.Module):
    """A pre-norm block with causal attention."""

    def __init__(self, dropout):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.drop = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Dropout(dropout)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH), self.drop)

    def forward(self, x):
        q, k, v = self.c_attn(self.ln_1(x)).split(WIDTH, 2)
        scores = (q @ k.transpose(1, 2) / WIDTH ** 0.5).masked_fill(self.mask(x), -math.inf)
        x = x + self.drop(scores.softmax(2)) @ v
        return x + self.mlp(self.ln_2(x))

    @staticmethod
    def mask(x):
        return torch.ones(x.size(1), x.size(1), dtype=torch.bool).triu(1)


class GPT(nn.Module):
    """Token and position embeddings, one block, and a head with the token embedding's weight if tied."""

    def __init__(self, dropout, is_tied):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(TOKENS, WIDTH), nn.Embedding(16, WIDTH)
        self.h, self.ln_f = Attention(dropout), nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, TOKENS, bias=False)
        if is_tied:
            self.lm_head.weight = self.wte.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.1)

    def forward(self, idx, targets):
        logits = self.lm_head(self.ln_f(self.h(self.wte(idx) + self.wpe(torch.arange(idx.size(1))))))
        return logits, F.cross_entropy(logits.reshape(-1, TOKENS), targets.reshape(-1), ignore_index=-1)

    def configure_optimizers(self, lr):
        decay = [p for p in self.parameters() if p.dim() > 1]
        rest = [p for p in self.parameters() if p.dim() < 2]
        return torch.optim.AdamW([dict(params=decay, weight_decay=0.1), dict(params=rest, weight_decay=0.0)], lr=lr,
                                 betas=(0.9, 0.95))


def nanogpt(draws, steps):
    """karpathy/nanoGPT: tied weights, groups with and without decay, warm-up and cosine by a function of the step."""
    model = GPT(0.1 * draws, True)
    optimizer = model.configure_optimizers(1e-2)

    def get_lr(it):
        if it < 4:
            return (it + 1) / 4
        return 0.1 + 0.45 * (1 + math.cos(math.pi * (it - 4) / (steps - 4)))

    def body(batch, mb, _):
        _, loss = model(batch[:, :-1], batch[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        mb.log(loss=loss)

    def estimate_loss(batch):
        return dict(loss_sum=model(batch[:, :-1], batch[:, 1:])[1] * len(batch))

    data = Samples(lambda i, g: draw_tokens(i, g, 13))
    return Script(model, data, optimizer, body, lr_scheduler.LambdaLR(optimizer, get_lr), clip_norm=1.0,
                  schedule_every="step", evaluate=(Samples(data.make, 16, first=100), estimate_loss, {}))


def mingpt(draws, steps):
    """karpathy/minGPT: it learns to sort; only the sorted half of a sequence counts; a callback for each batch."""
    model, losses = GPT(0.1 * draws, False), []
    optimizer = model.configure_optimizers(5e-3)

    def make(_, generator):
        digits = torch.randint(4, (6,), generator=generator)
        whole = torch.cat([digits, digits.sort()[0]])
        targets = whole[1:].clone()
        targets[:5] = -1
        return whole[:-1], targets

    def body(batch, mb, _):
        x, y = [part.to("cpu") for part in batch]
        model.train()
        _, loss = model(x, y)
        model.zero_grad(set_to_none=True)
        loss.backward()
        mb.log(loss=loss)
        on_batch_end(loss)

    def on_batch_end(loss):
        losses.append(loss.item())
        print(f"iter {len(losses)}: train loss {loss.item():.5f}")

    return Script(model, Samples(make), optimizer, body, clip_norm=1.0)


def seq2seq(draws, steps):
    """The translation tutorial: two optimizers, and the decoder gets its own words half of the time."""
    encoder = nn.ModuleDict(dict(embedding=nn.Embedding(TOKENS, WIDTH), gru=nn.GRU(WIDTH, WIDTH, batch_first=True)))
    decoder = nn.ModuleDict(dict(embedding=nn.Embedding(TOKENS + 1, WIDTH), gru=nn.GRUCell(WIDTH, WIDTH),
                                 out=nn.Linear(WIDTH, TOKENS)))
    encoder_optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    decoder_optimizer = torch.optim.SGD(decoder.parameters(), lr=0.5)
    criterion = nn.NLLLoss()

    def body(batch, mb, _):
        encoder_optimizer.zero_grad()
        decoder_optimizer.zero_grad()
        hidden = encoder.gru(encoder.embedding(batch))[1][0]
        word, loss = torch.full((len(batch),), TOKENS), 0
        teacher_forcing = random.random() < 0.5 if draws else True
        for target in batch.flip(1).t():
            hidden = decoder.gru(decoder.embedding(word), hidden)
            output = decoder.out(hidden).log_softmax(1)
            loss = loss + criterion(output, target)
            word = target if teacher_forcing else output.topk(1)[1].squeeze(1).detach()
        loss = loss / batch.size(1)
        loss.backward()
        mb.log(loss=loss.item())

    return Script(nn.ModuleDict(dict(encoder=encoder, decoder=decoder)), Samples(lambda i, g: draw_tokens(i, g, 5)),
                  dict(encoder=encoder_optimizer, decoder=decoder_optimizer), body)
