"""The paper's recipe in plain PyTorch: what ffjax is measured against.

Written the way a PyTorch user would: nn.Linear, Adam, mini-batches, one layer at a
time. The layers below run again at every step under no_grad, entmax is the bisection of
the package that the paper used, and top-k is torch.topk.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import entmax as entmax_package
import torch
from torch import Tensor, nn
from torch.nn import functional as F

LEARNING_RATE = 1e-3
THRESHOLD = 2.0
LABEL_SCALE = 5.0
MOMENTUM = 0.9  # of softmax_energy_margin's running mean


def sos(h: Tensor) -> Tensor:
    return h.square().mean(-1)


def variance(h: Tensor) -> Tensor:
    return h.var(-1, correction=0)


def neg_entropy(h: Tensor) -> Tensor:
    log_p = F.log_softmax(h, -1)
    return math.log(h.shape[-1]) + (log_p.exp() * log_p).sum(-1)


def softmax_energy_margin(h: Tensor, running_mean: Tensor) -> Tensor:
    return sos(h) - 0.5 * running_mean * torch.logsumexp(h, -1)


def game_theoretic(h: Tensor) -> Tensor:
    weight = h.abs()
    return (weight * h.square()).sum(-1) / (weight.sum(-1) + 1e-12)


def game_theoretic_shah(h: Tensor) -> Tensor:
    weight = h.abs()
    share = weight / (weight.sum(-1, keepdim=True) + 1e-12)
    return (h.square() * (1 + 0.1 * share)).mean(-1)


def topk(h: Tensor, fraction: float = 0.02) -> Tensor:
    k = max(5, int(fraction * h.shape[-1]))
    return torch.topk(h, k).values.mean(-1)


def contrast_topk(h: Tensor, fraction: float = 0.01) -> Tensor:
    return topk(h, fraction) + topk(-h, fraction)


def ln_topk(h: Tensor) -> Tensor:
    return topk(F.layer_norm(h, h.shape[-1:]))


def entmax(h: Tensor, alpha: float = 1.5) -> Tensor:
    weights = entmax_package.entmax_bisect(h, alpha=alpha, dim=-1)
    return (weights * h.square()).sum(-1)


def burstiness(h: Tensor) -> Tensor:
    square = (h - h.mean(-1, keepdim=True)).square()
    return square.square().mean(-1) / (square.mean(-1) + 1e-8).square() - 3


def ln_burstiness(h: Tensor) -> Tensor:
    return burstiness(F.layer_norm(h, h.shape[-1:]))


def moment(h: Tensor, p: int = 6) -> Tensor:
    centred = h - h.mean(-1, keepdim=True)
    standard = centred / (centred.square().mean(-1, keepdim=True) + 1e-8).sqrt()
    return standard.pow(p).mean(-1) - math.prod(range(p - 1, 0, -2))


GOODNESS: dict[str, Callable[..., Tensor]] = {
    function.__name__: function
    for function in (
        sos,
        variance,
        neg_entropy,
        softmax_energy_margin,
        game_theoretic,
        game_theoretic_shah,
        topk,
        contrast_topk,
        ln_topk,
        entmax,
        burstiness,
        ln_burstiness,
        moment,
    )
}


class Network(nn.Module):
    """A stack of layers, trained one by one; GELU, no norm gate.

    Pathway "standard" puts the label into the input, "ffcl" shifts the activations that
    goodness is measured on.
    """

    def __init__(
        self,
        pathway: str,
        goodness: str,
        num_inputs: int,
        widths: Iterable[int],
        num_classes: int,
    ):
        super().__init__()
        self.pathway = pathway
        self.goodness = GOODNESS[goodness]
        self.num_classes = num_classes
        self.layers, self.label_layers = nn.ModuleList(), nn.ModuleList()
        self.running_means: list[Tensor] = []
        fan_in = num_inputs + (num_classes if pathway == "standard" else 0)
        for width in widths:
            self.layers.append(nn.Linear(fan_in, width))
            if pathway == "ffcl":
                self.label_layers.append(nn.Linear(num_classes, width, bias=False))
            self.running_means.append(torch.zeros(()))
            fan_in = width

    def encode(self, images: Tensor, labels: Tensor) -> Tensor:
        if self.pathway == "standard":
            onehot = F.one_hot(labels, self.num_classes).float()
            images = torch.cat([images, LABEL_SCALE * onehot], dim=-1)
        return F.normalize(images, dim=-1)

    def run(self, index: int, x: Tensor) -> Tensor:
        return F.gelu(self.layers[index](x))

    def shift(self, index: int, h: Tensor, labels: Tensor) -> Tensor:
        onehot = F.one_hot(labels, self.num_classes).float()
        return h + self.label_layers[index](onehot)

    def measure(self, h: Tensor, running_mean: Tensor) -> Tensor:
        if self.goodness is softmax_energy_margin:
            return self.goodness(h, running_mean)
        return self.goodness(h)

    def layer_parameters(self, index: int) -> list[nn.Parameter]:
        modules = [self.layers[index]]
        if self.pathway == "ffcl":
            modules.append(self.label_layers[index])
        return [parameter for module in modules for parameter in module.parameters()]


def next_inputs(network: Network, index: int, x: Tensor) -> Tensor:
    """What the layer above a layer is given."""
    return F.normalize(network.run(index, x), dim=-1)


@torch.no_grad()
def layer_inputs(
    network: Network, index: int, images: Tensor, labels: Tensor, wrong: Tensor
) -> Tensor:
    """A batch as a layer is given it: standard has it under both labels."""
    if network.pathway == "standard":
        images, labels = torch.cat([images, images]), torch.cat([labels, wrong])
    x = network.encode(images, labels)
    for below in range(index):
        x = next_inputs(network, below, x)
    return x


def layer_loss(
    network: Network,
    index: int,
    x: Tensor,
    labels: Tensor,
    wrong: Tensor,
    mean: Tensor,
) -> tuple[Tensor, Tensor]:
    """The loss of a layer for a batch of its inputs, and the sum of squares it saw."""
    h = network.run(index, x).float()
    if network.pathway == "standard":
        positive, negative = h.chunk(2)
    else:
        positive = network.shift(index, h, labels)
        negative = network.shift(index, h, wrong)
    good, bad = network.measure(positive, mean), network.measure(negative, mean)
    loss = F.softplus(THRESHOLD - good).mean() + F.softplus(bad - THRESHOLD).mean()
    seen = torch.zeros(())
    if network.goodness is softmax_energy_margin:
        seen = (good.detach().mean() + bad.detach().mean()) / 2
    return loss, seen


def follow(network: Network, index: int, seen: Tensor) -> None:
    """Moves the running mean of softmax_energy_margin; the others have none."""
    if network.goodness is softmax_energy_margin:
        mean = network.running_means[index]
        network.running_means[index] = MOMENTUM * mean + (1 - MOMENTUM) * seen


def train_step(
    network: Network,
    index: int,
    optimizer: torch.optim.Optimizer,
    images: Tensor,
    labels: Tensor,
    wrong: Tensor,
) -> float:
    """One step of one layer; returns its loss."""
    x = layer_inputs(network, index, images, labels, wrong)
    loss, seen = layer_loss(
        network, index, x, labels, wrong, network.running_means[index]
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    follow(network, index, seen)
    return loss.item()


def kept_images(network: Network, images: Tensor) -> Tensor:
    """Inputs of the first layer, (C, N, D) for standard, (1, N, D) for ffcl."""
    candidates = network.num_classes if network.pathway == "standard" else 1
    labels = [torch.full((len(images),), label) for label in range(candidates)]
    return torch.stack([network.encode(images, label) for label in labels])


def kept_batch(
    network: Network, inputs: Tensor, rows: Tensor, labels: Tensor, wrong: Tensor
) -> Tensor:
    """``layer_inputs`` from inputs of all images that were kept, (C or 1, N, D)."""
    if network.pathway == "standard":
        return inputs[torch.cat([labels, wrong]), torch.cat([rows, rows])]
    return inputs[0][rows]


def train_epoch(
    network: Network,
    index: int,
    optimizer: torch.optim.Optimizer,
    images: Tensor,
    labels: Tensor,
    batches: Sequence[tuple[Tensor, Tensor]],
) -> float:
    """One epoch of one layer: ``batches`` are rows and their wrong labels.

    Returns:
      The mean loss.
    """
    losses = [
        train_step(network, index, optimizer, images[rows], labels[rows], wrong)
        for rows, wrong in batches
    ]
    return sum(losses) / len(losses)


@torch.no_grad()
def score_images(network: Network, images: Tensor, batch_size: int) -> Tensor:
    """Goodness of every layer and of their concatenation under every label.

    Returns:
      (N, L + 1, C). ffcl runs the images through the layers once, for all labels.
    """
    return torch.cat([_score_batch(network, x) for x in images.split(batch_size)])


def _score_batch(network: Network, images: Tensor) -> Tensor:
    depth = len(network.layers)
    means = network.running_means
    means = [*means, sum(means[1:], start=means[0]) / depth]
    scores: list[Tensor] = []
    features: list[Tensor] = []
    for label in range(network.num_classes):
        labels = torch.full((len(images),), label)
        if not features or network.pathway == "standard":
            x, features = network.encode(images, labels), []
            for index in range(depth):
                features.append(network.run(index, x))
                x = F.normalize(features[-1], dim=-1)
        measured = features
        if network.pathway == "ffcl":
            measured = [network.shift(i, h, labels) for i, h in enumerate(features)]
        parts = [*measured, torch.cat(measured, dim=-1)]
        pairs = zip(parts, means, strict=True)
        scores.append(torch.stack([network.measure(h, m) for h, m in pairs], dim=1))
    return torch.stack(scores, dim=-1)
