"""Scripts on tables, ratings and an environment."""
import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

from .script import EVALUATE_EVERY_STEPS, Samples, Script, save

GOOD_LOSS = 0.5


class DLRM(nn.Module):
    """Dense features and three tables, whose products are compared."""

    def __init__(self):
        super().__init__()
        self.emb_l = nn.ModuleList(nn.EmbeddingBag(rows, 8, mode="sum") for rows in (5, 50, 200))
        self.bot_l, self.top_l = nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.Linear(8 + 6, 1)

    def forward(self, dense_x, lS_i):
        x = self.bot_l(dense_x)
        every = torch.stack([x] + [table(lS_i[:, 2 * n:2 * n + 2]) for n, table in enumerate(self.emb_l)], 1)
        products = (every @ every.transpose(1, 2))[:, [1, 2, 3, 2, 3, 3], [0, 0, 0, 1, 1, 2]]
        return self.top_l(torch.cat([x, products], 1)).squeeze(1)


def draw_click(index, generator):
    """Dense features, two rows of each table, and whether there was a click."""
    dense = torch.randn(4, generator=generator)
    rows = torch.cat([torch.randint(count, (2,), generator=generator) for count in (5, 50, 200)])
    return dense, rows, (dense.sum() + rows[0] - 2 > 0).float()


def dlrm(draws, steps):
    """facebookresearch/dlrm: several tables, of whose rows a batch reads a few; Adagrad."""
    model, loss_fn = DLRM(), nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)

    def body(batch, mb, _):
        dense, rows, click = batch
        loss = loss_fn(model(dense, rows), click)
        optimizer.zero_grad()
        loss.backward()
        mb.log(loss=loss)

    return Script(model, Samples(draw_click), optimizer, body)


def compute_auc(parts):
    """The fraction of pairs that the score orders rightly."""
    scores, clicks = (torch.cat([torch.as_tensor(part[name]) for part in parts]) for name in ("score", "click"))
    return (scores[clicks > 0][:, None] > scores[clicks == 0][None]).double().mean()


def make_click_body(model, optimizer):
    """The loop's body of a model of clicks, on dense features alone."""
    def body(batch, mb, _):
        dense, _, click = batch
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(dense).squeeze(1), click)
        loss.backward()
        mb.log(loss=loss)

    return body


def click_auc(draws, steps):
    """A click model, judged by the area under its curve over the whole test set."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1 * draws), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    body = make_click_body(model, optimizer)

    def test(dense, _, click):
        return dict(score=model(dense).squeeze(1), click=click)

    return Script(model, Samples(draw_click), optimizer, body, evaluate_every_steps=EVALUATE_EVERY_STEPS,
                  evaluate=(Samples(draw_click, 40, first=100), test,
                            dict(batch_size=16, reduce=dict(auc=compute_auc))))


def early_stop(draws, steps):
    """The usual class EarlyStopping: the best model is kept, and training ends when the test loss is good enough.

    The best loss is in the checkpoint, because each call may be in another process.
    """
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.15, momentum=0.9)
    body = make_click_body(model, optimizer)

    def test(dense, _, click):
        return dict(loss_sum=F.binary_cross_entropy_with_logits(model(dense).squeeze(1), click, reduction="sum"))

    def report(results, rank):
        if not os.path.exists("best.pt") or results.loss < torch.load("best.pt")["loss"]:
            save(dict(loss=results.loss, model=model.state_dict()), "best.pt", rank)
        return f"the test loss is {results.loss}" if results.loss < GOOD_LOSS else None

    return Script(model, Samples(draw_click), optimizer, body, evaluate_every_steps=EVALUATE_EVERY_STEPS,
                  evaluate=(Samples(draw_click, 40, first=100), test, {}), report=report)


class Policy(nn.Module):
    """Actor and critic. The lists hold what happened in an episode."""

    def __init__(self):
        super().__init__()
        self.affine1, self.action_head, self.value_head = nn.Linear(4, 16), nn.Linear(16, 2), nn.Linear(16, 1)
        self.saved_actions, self.rewards = [], []

    def forward(self, x):
        x = F.relu(self.affine1(x))
        return self.action_head(x).softmax(-1), self.value_head(x).squeeze(-1)


def actor_critic(draws, steps):
    """pytorch/examples, actor_critic: the module's lists fill during an episode, and finish_episode empties them."""
    model = Policy()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def select_action(state, luck):
        probs, value = model(state)
        action = Categorical(probs).sample() if draws else (luck > probs[:, 0]).long()
        model.saved_actions.append((probs.gather(1, action[:, None]).squeeze(1).log(), value))
        return action

    def finish_episode():
        total, losses = 0, []
        for (log_prob, value), reward in zip(model.saved_actions[::-1], model.rewards[::-1]):
            total = reward + 0.9 * total
            losses.append(-log_prob * (total - value.detach()) + F.smooth_l1_loss(value, total, reduction="none"))
        loss = torch.stack(losses).sum(0).mean()
        loss.backward()
        del model.rewards[:]
        del model.saved_actions[:]
        return loss

    def body(batch, mb, _):
        state, luck = batch
        optimizer.zero_grad()
        for t in range(5):
            action = select_action(state, luck[:, t])
            state = 0.9 * state + (action[:, None] - 0.5)
            model.rewards.append(-state.abs().mean(1))
        mb.log(loss=finish_episode().item())

    return Script(model, Samples(lambda _, g: (torch.randn(4, generator=g), torch.rand(5, generator=g))), optimizer,
                  body)
