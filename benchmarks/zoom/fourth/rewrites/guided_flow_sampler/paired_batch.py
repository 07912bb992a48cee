import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill, linears


class VelocityNet(nn.Module):
    def __init__(self, c=8, d=24, dc=12, dt=16):
        super().__init__()
        self.dt = dt
        self.latent, self.time, self.prompt = nn.Linear(c, d), nn.Linear(dt, d), nn.Linear(dc, d)
        self.head = nn.Linear(d, c)

    def clock(self, sigma):
        rates = 10000.0 ** (-np.arange(self.dt // 2) / (self.dt // 2))
        angles = 1000.0 * sigma * rates
        return torch.from_numpy(np.concatenate([np.cos(angles), np.sin(angles)])).float()

    def forward(self, x, sigma, prompt):
        bias = self.time(self.clock(sigma).to(x.dtype)) + self.prompt(prompt)
        h = self.latent(x) + bias.unsqueeze(1)
        return self.head(h * torch.sigmoid(h))


class Pipeline(nn.Module):
    """Both prompts go through the network in one batch, the negative one first."""

    def __init__(self, n=4, mu=3.0, cfg=4.0):
        super().__init__()
        self.n, self.mu, self.cfg = n, mu, cfg
        self.net = VelocityNet()

    def sigmas(self):
        even = np.linspace(1.0, 1.0 / self.n, self.n)
        moved = self.mu / (self.mu + (1 / even - 1))
        return np.append(moved, 0.0)

    def guided(self, x, sigma, prompts):
        twice = torch.cat([x, x]).to(prompts.dtype)
        without, given = self.net(twice, sigma, prompts).float().chunk(2)
        mixed = without + self.cfg * (given - without)
        length = torch.linalg.vector_norm(given, dim=-1, keepdim=True)
        return F.normalize(mixed, dim=-1) * length

    def forward(self, noise, positive, negative):
        prompts = torch.cat([negative, positive])
        sigmas = self.sigmas()
        x = noise.float()
        for now, after in zip(sigmas[:-1], sigmas[1:]):
            x = x - float(now - after) * self.guided(x, now, prompts)
        return x


def build(weights):
    names = {"net.latent": "model.x_in", "net.time": "model.t_in", "net.prompt": "model.c_in", "net.head": "model.out"}
    return fill(Pipeline(), linears(weights, names))
