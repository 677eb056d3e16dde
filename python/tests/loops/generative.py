"""Scripts that generate samples: autoencoders and adversarial networks."""
import torch
import torch.nn.functional as F
from torch import nn

from .script import Samples, Script, draw_class


def draw_picture(index, generator):
    """A picture with values in 0 to 1, and noise for it."""
    return draw_class(index, generator, 1, 8, 8)[0].sigmoid(), torch.randn(8, generator=generator)


class VAE(nn.Module):
    """Fully connected, with a code of 8 numbers."""

    def __init__(self):
        super().__init__()
        self.fc1, self.mu, self.logvar = nn.Linear(64, 32), nn.Linear(32, 8), nn.Linear(32, 8)
        self.decode = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 64), nn.Sigmoid())

    def forward(self, x, noise):
        h1 = F.relu(self.fc1(x.view(-1, 64)))
        mu, logvar = self.mu(h1), self.logvar(h1)
        std = torch.exp(0.5 * logvar)
        return self.decode(mu + std * (torch.randn_like(std) if noise is None else noise)), mu, logvar


def vae(draws, steps):
    """pytorch/examples, vae. There the losses are sums over the batch; here they are means over its samples."""
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def body(batch, mb, _):
        data, noise = batch
        model.train()
        optimizer.zero_grad()
        recon, mu, logvar = model(data, None if draws else noise)
        bce = F.binary_cross_entropy(recon, data.view(-1, 64), reduction="sum") / len(data)
        kl = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp()) / len(data)
        loss = bce + kl
        loss.backward()
        mb.log(loss=loss, kl=kl)

    return Script(model, Samples(draw_picture), optimizer, body, log=["kl"])


def make_generator():
    return nn.Sequential(nn.Linear(8, 64, bias=False), nn.Unflatten(1, (4, 4, 4)), nn.BatchNorm2d(4), nn.ReLU(),
                         nn.ConvTranspose2d(4, 1, 4, 2, 1, bias=False), nn.Sigmoid())


def dcgan(draws, steps):
    """pytorch/examples, dcgan: two backwards for the discriminator, one for the generator."""
    netG, criterion = make_generator(), nn.BCELoss()
    netD = nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1, bias=False), nn.LeakyReLU(0.2), nn.Conv2d(4, 8, 3, 2, 1, bias=False),
                         nn.BatchNorm2d(8), nn.LeakyReLU(0.2), nn.Conv2d(8, 1, 2, bias=False), nn.Sigmoid())
    optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-3, betas=(0.5, 0.999))
    optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-3, betas=(0.5, 0.999))

    def body(batch, mb, turn):
        real, noise = batch
        label = torch.full((len(real),), 1.0)
        fake = netG(torch.randn(len(real), 8) if draws else noise)
        if turn == "D":
            netD.zero_grad()
            errD_real = criterion(netD(real).view(-1), label)
            errD_real.backward()
            label.fill_(0.0)
            errD_fake = criterion(netD(fake.detach()).view(-1), label)
            errD_fake.backward()
            mb.log(loss=errD_real + errD_fake)
        else:
            netG.zero_grad()
            errG = criterion(netD(fake).view(-1), label)
            errG.backward()
            mb.log(loss=errG)

    return Script(nn.ModuleDict(dict(D=netD, G=netG)), Samples(draw_picture), dict(D=optimizerD, G=optimizerG), body,
                  turns=["D", "G"], micro_batches=2)


def wgan(draws, steps):
    """eriklindernoren/PyTorch-GAN, wgan: five steps of the critic with clipped weights, one of the generator."""
    generator = make_generator()
    critic = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    optimizer_G = torch.optim.RMSprop(generator.parameters(), lr=5e-4)
    optimizer_D = torch.optim.RMSprop(critic.parameters(), lr=5e-4)

    def body(batch, mb, turn):
        real, noise = batch
        z = torch.randn(len(real), 8) if draws else noise
        if turn == "D":
            optimizer_D.zero_grad()
            loss = -torch.mean(critic(real)) + torch.mean(critic(generator(z).detach()))
        else:
            optimizer_G.zero_grad()
            loss = -torch.mean(critic(generator(z)))
        loss.backward()
        mb.log(loss=loss)

    return Script(nn.ModuleDict(dict(D=critic, G=generator)), Samples(draw_picture),
                  dict(D=optimizer_D, G=optimizer_G), body, turns=["D"] * 5 + ["G"], weight_clip=dict(D=0.01),
                  micro_batches=2)


def autoencoder(draws, steps):
    """A denoising autoencoder with a sparse code: two backwards through one graph."""
    model = nn.ModuleDict(dict(encoder=nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU()),
                               decoder=nn.Sequential(nn.Linear(16, 64), nn.Sigmoid())))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-5)

    def body(batch, mb, _):
        img, _ = batch
        optimizer.zero_grad()
        code = model.encoder(img + 0.1 * torch.randn_like(img) if draws else img)
        loss = F.mse_loss(model.decoder(code), img.flatten(1))
        loss.backward(retain_graph=True)
        sparsity = 1e-3 * code.abs().sum(1).mean()
        sparsity.backward()
        mb.log(loss=loss.item(), sparsity=sparsity.item())

    return Script(model, Samples(draw_picture), optimizer, body, log=["sparsity"])
