"""What several ranks compute, by one process without data parallelism: `oracle_ranks.py MODEL BATCH SEED RANKS OUT`.

Each part of the global batch goes through the network by itself, so that BatchNorm normalises over that part alone; the
mean of the gradients is applied once. Writes the losses and, as dlperf.adapters.trace does, sketches of the first
gradients and of the changes of the weights. The network is our PyTorch adapter's, the loop and the update are not.
"""

import sys

import numpy
import torch

from dlperf import models
from dlperf.adapters.pytorch import resnet as adapter
from dlperf.adapters.trace import sketch
from dlperf.models.parameters import initial

model, batch_size, seed, ranks, out = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
config, family = models.config(model), models.family(model)
recipe = family.optimizer(batch_size)
network = adapter.Network(config, dropout=0.0).double()
state, parameters = network.state_dict(), {p.name: p for p in family.parameters(config)}
with torch.no_grad():
    for name, parameter in parameters.items():
        state[name].copy_(torch.from_numpy(initial(parameter, seed, "float64")))
weights = dict(network.named_parameters())
velocity = {name: torch.zeros_like(weight) for name, weight in weights.items()}

losses, found = [], {}
for step in range(10):
    whole = {k: torch.from_numpy(v) for k, v in family.batch(config, batch_size, seed, step).items()}
    network.zero_grad()
    total = 0.0
    for rank in range(ranks):
        rows = slice(rank * batch_size // ranks, (rank + 1) * batch_size // ranks)
        part = {"images": whole["images"][rows].double(), "labels": whole["labels"][rows]}
        loss = adapter.loss(network, part)[0] / ranks
        loss.backward()
        total += loss.item()
    losses.append(total)
    with torch.no_grad():
        for name, weight in weights.items():
            if step == 0:
                found["gradient/" + name] = sketch(name, weight.grad.numpy())
            decay = recipe.weight_decay if parameters[name].decayed else 0.0
            velocity[name] = recipe.momentum * velocity[name] + weight.grad + decay * weight
            weight -= recipe.learning_rate * velocity[name]
for name, weight in weights.items():
    found["change/" + name] = sketch(name, weight.detach().numpy() - initial(parameters[name], seed, "float64"))
numpy.savez(out, losses=numpy.array(losses), **found)
