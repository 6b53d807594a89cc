"""One step of PyTorch's EmbeddingBag and TripletMarginWithDistanceLoss with our weights:
`oracle_simnet_bow.py MODEL BATCH_SIZE SEED OUT.npz`.

A bag is the sum of the rows that it names, so that no place is padded; and where the distance is one less the cosine,
the triplet's loss is the pair's. Writes the loss and the sketches of logits and gradients, as dlperf.adapters.trace
does.
"""

import sys

import numpy
import torch
from torch import nn

from dlperf import models
from dlperf.adapters.trace import sketch
from dlperf.models.parameters import initial

model, batch_size, seed, out = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
config, family = models.config(model), models.family(model)

start = {one.name: torch.from_numpy(initial(one, seed, "float64")) for one in family.parameters(config)}
network = nn.ModuleDict(
    {
        "emb": nn.EmbeddingBag(config.vocabulary, config.width, mode="sum"),
        "q_fc": nn.Linear(config.width, config.hidden),
        "fc": nn.Linear(config.width, config.hidden),
    }
).double()
network.load_state_dict(start)


def vectors(texts, layer):
    words = [torch.tensor([word for word in text if word >= 0]) for text in texts.tolist()]
    offsets = torch.tensor([0, *numpy.cumsum([len(one) for one in words])[:-1]])
    return network[layer](nn.Softsign()(network["emb"](torch.cat(words), offsets)))


batch = family.batch(config, batch_size, seed, 0)
query, title, other = vectors(batch["query"], "q_fc"), vectors(batch["title"], "fc"), vectors(batch["other"], "fc")
cosine = nn.CosineSimilarity()
distance = nn.TripletMarginWithDistanceLoss(distance_function=lambda a, b: 1 - cosine(a, b), margin=config.margin)
loss = distance(query, title, other)
loss.backward()

cosines = torch.stack([cosine(query, title), cosine(query, other)], 1)
found = {"loss": loss.item(), "logits/cosines": sketch("cosines", cosines.detach().numpy())}
for name, weight in network.named_parameters():
    found["gradient/" + name] = sketch(name, weight.grad.numpy())
numpy.savez(out, **found)
