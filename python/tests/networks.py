"""Networks of the tests with the real library, and their data. Random numbers in all of them."""
from support import Points, make_mlp, nn, torch  # noqa: F401
from vit import ViT


class Pictures(torch.utils.data.Dataset):
    """Pictures [1, 28, 28] with random augmentation, and classes; drawn from the index."""

    def __init__(self, count=64, noise=0.1):
        generator = torch.Generator().manual_seed(9)
        self.x = torch.randn(count, 1, 28, 28, generator=generator)
        self.y = torch.randint(10, (count,), generator=generator)
        self.noise = noise

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        noise = self.noise * torch.randn(1, 28, 28) if self.noise else 0
        return self.x[index] + noise, self.y[index]


def make_lenet5():
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(),
                         nn.AvgPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(),
                         nn.Linear(84, 10))


def make_picture_mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10))


def make_norm_net():
    return nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 8, 3, stride=2),
                         nn.BatchNorm2d(8, affine=False), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(288, 10))


def make_vit(dropout=0.1):
    return ViT(width=16, depth=2, heads=2, dropout=dropout)


CLASS_WEIGHTS = torch.arange(10) / 3  # the first class counts nothing
MAKERS = {"mlp": make_picture_mlp, "norm": make_norm_net, "vit": make_vit}
