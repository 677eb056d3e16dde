"""Pando's networks in PyTorch, by Pando's names: the benchmarks' twins, and torchvision's for the papers."""
import torchvision
from make_network_goldens import CifarCnn
from pytorch_training import MODELS as BENCHMARK_MODELS
from torch import nn
from torch.utils.checkpoint import checkpoint


def with_small_stem(net: nn.Module) -> nn.Module:
    """A ResNet for pictures of 32 x 32, as Pando's resnet*-cifar."""
    net.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    net.maxpool = nn.Identity()
    return net


class CheckpointedResNet(nn.Module):
    """A ResNet that keeps the inputs of its four stages, and computes the rest again in backward."""

    def __init__(self, net: nn.Module, is_reentrant: bool):
        super().__init__()
        self.net, self.is_reentrant = net, is_reentrant

    def forward(self, x):
        net = self.net
        x = net.maxpool(net.relu(net.bn1(net.conv1(x))))
        for stage in (net.layer1, net.layer2, net.layer3, net.layer4):
            x = checkpoint(stage, x, use_reentrant=self.is_reentrant) if self.training else stage(x)
        return net.fc(net.avgpool(x).flatten(1))


def make_model(name: str, classes: int, checkpoints: int, is_reentrant: bool = True) -> nn.Module:
    """Makes a model. With reentrant checkpoints memory_kinds.py sees the repeated computing, but a DDP that looks for
    unused parameters does not support them."""
    if name in ("resnet50-cifar", "resnet101-cifar"):
        net = with_small_stem(getattr(torchvision.models, name.split("-")[0])(num_classes=classes))
        return CheckpointedResNet(net, is_reentrant) if checkpoints else net
    if name == "vgg16":
        return torchvision.models.vgg16(num_classes=classes)
    if name == "cifar-cnn":
        return CifarCnn()
    return BENCHMARK_MODELS[name]()
