"""What several ranks compute, by one process without data parallelism: `oracle_ranks.py MODEL BATCH SEED RANKS OUT
[fp16 | powersgd | 2bit | dgc]`.

Each part of the global batch goes through the network by itself, so that BatchNorm normalises over that part alone; the
mean of the gradients is applied once, or what ranks exchange of them, compressed by NumPy. Writes the losses and, as
dlperf.adapters.trace does, sketches of the first gradients and of the changes of the weights. The network is our
PyTorch adapter's; the loop, the compression and the update are not.
"""

import importlib
import sys

import numpy
import torch

from dlperf import models
from dlperf.adapters.compression import first
from dlperf.adapters.trace import sketch
from dlperf.models.parameters import initial, random_state

model, batch_size, seed, ranks, out = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
compression = sys.argv[6] if len(sys.argv) > 6 else "none"
adapter = importlib.import_module(f"dlperf.adapters.pytorch.{models.FAMILY_OF[model]}")
config, family = models.config(model), models.family(model)
recipe = family.optimizer(batch_size)
more = {"drop": torch.nn.functional.dropout} if models.FAMILY_OF[model] == "vgg" else {}
network = adapter.Network(config, dropout=0.0, **more).double()
state, parameters = network.state_dict(), {p.name: p for p in family.parameters(config)}
with torch.no_grad():
    for name, parameter in parameters.items():
        state[name].copy_(torch.from_numpy(initial(parameter, seed, "float64")))
weights = dict(network.named_parameters())
velocity = {name: torch.zeros_like(weight) for name, weight in weights.items()}

#: of each rank, what deep gradient compression keeps; v starts as it does in a proof
kept = [{name: numpy.zeros((2, *weight.shape)) for name, weight in weights.items()} for _ in range(ranks)]
for name, weight in weights.items():
    for one in kept:
        one[name][1] = first(weight.shape)


def deep(rank, name, gradient, step):
    """What a rank sends of a tensor, zero elsewhere."""
    u, v = kept[rank][name]
    u[:] = recipe.momentum * u + gradient
    v += u
    share = 0.001 ** min(1, (step + 1) / 5)
    most = numpy.argsort(-abs(v), axis=None)[: max(1, int(v.size * share))]
    sent = numpy.zeros_like(v)
    sent.flat[most] = v.flat[most]
    u.flat[most] = v.flat[most] = 0
    return sent


#: of each rank, what the others leave for later
left = [{name: numpy.zeros(weight.shape) for name, weight in weights.items()} for _ in range(ranks)]
narrow = {}


def coarse(rank, name, gradient):
    """What a rank sends of a tensor in 2 bits; the threshold is 0.5 for losses that are added up over its rows."""
    threshold = numpy.float32(0.5 / (batch_size // ranks))
    e = left[rank][name].astype("float32") + gradient.astype("float32")
    sent = numpy.where(e >= threshold, threshold, numpy.where(e <= -threshold, -threshold, numpy.float32(0)))
    left[rank][name] = e - sent
    return sent.astype(float)


def orthonormal(matrix):
    """By Gram and Schmidt."""
    columns = []
    for column in matrix.T:
        for other in columns:
            column = column - other * (other @ column)
        columns.append(column / (numpy.linalg.norm(column) + 1e-8))
    return numpy.stack(columns, 1)


def low_rank(name, gradients):
    """The mean over ranks of matrices, as PowerSGD has it."""
    matrices = [g.reshape(len(g), -1) + left[rank][name].reshape(len(g), -1) for rank, g in enumerate(gradients)]
    rows, columns = matrices[0].shape
    rank = min(rows, columns, 2)
    if rows * columns <= 2 * (rows + columns) * rank:
        return sum(gradients) / len(gradients)
    q = narrow.get(name)
    if q is None:
        q = random_state(1, f"{name} in PowerSGD").standard_normal((columns, rank))
    q = orthonormal(q)
    p = orthonormal(sum(matrix @ q for matrix in matrices))
    narrow[name] = q = sum(matrix.T @ p for matrix in matrices) / len(matrices)
    for one, matrix in enumerate(matrices):
        left[one][name] = (matrix - p @ q.T).reshape(gradients[0].shape)
    return (p @ q.T).reshape(gradients[0].shape)


losses, found = [], {}
for step in range(10):
    whole = {k: torch.from_numpy(v) for k, v in family.batch(config, batch_size, seed, step).items()}
    parts = []
    for rank in range(ranks):
        rows = slice(rank * batch_size // ranks, (rank + 1) * batch_size // ranks)
        part = {"images": whole["images"][rows].double(), "labels": whole["labels"][rows]}
        network.zero_grad()
        loss = adapter.loss(network, part)[0]
        loss.backward()
        parts.append({name: weight.grad.numpy() for name, weight in weights.items()})
        losses.append(loss.item())
    with torch.no_grad():
        for name, weight in weights.items():
            decay = (recipe.weight_decay if parameters[name].decayed else 0.0) * weight.numpy()
            own = [part[name].copy() for part in parts]
            sparse = compression == "dgc" and weight.ndim > 1
            if sparse:
                own = [deep(rank, name, gradient + decay, step) for rank, gradient in enumerate(own)]
            elif compression == "fp16":
                # from float64 by way of float32, as PyTorch converts it
                own = [gradient.astype("float32").astype("float16") / numpy.float16(ranks) for gradient in own]
            elif compression == "2bit":
                own = [coarse(rank, name, gradient) for rank, gradient in enumerate(own)]
            mean = sum(own).astype(float) / (1 if compression == "fp16" else ranks)
            if compression == "powersgd" and weight.ndim > 1 and step >= 2:
                mean = low_rank(name, own)
            if step == 0:
                found["gradient/" + name] = sketch(name, mean)
            velocity[name] = torch.from_numpy(mean) + (0 if sparse else recipe.momentum * velocity[name] + decay)
            weight -= recipe.learning_rate * velocity[name]
losses = numpy.reshape(losses, (10, ranks)).mean(1)
for name, weight in weights.items():
    found["change/" + name] = sketch(name, weight.detach().numpy() - initial(parameters[name], seed, "float64"))
numpy.savez(out, losses=losses, **found)
