"""One step of PyTorch's own Transformer layers with our weights: `oracle_transformer.py MODEL BATCH_SIZE SEED OUT.npz`.

Writes the loss and the sketches of logits and gradients, as dlperf.adapters.trace does.
"""

import math
import sys

import numpy
import torch
from torch import nn

from dlperf import models
from dlperf.adapters.trace import sketch
from dlperf.models.parameters import initial

model, batch_size, seed, out = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
config, family = models.config(model), models.family(model)
parameters = family.parameters(config)
#: our name of a tensor in a layer -> theirs
NAMES = {
    "feed_forward.inner": "linear1",
    "feed_forward.outer": "linear2",
    "self_attention.output": "self_attn.out_proj",
    "cross_attention.output": "multihead_attn.out_proj",
}
ATTENTION = {"self_attention": "self_attn", "cross_attention": "multihead_attn"}

torch.set_default_dtype(torch.float64)
settings = dict(dropout=0.0, batch_first=True, norm_first=config.pre_norm, layer_norm_eps=config.norm_eps)
network = nn.Transformer(
    config.hidden, config.heads, config.layers, config.layers, config.intermediate, activation="relu", **settings
)
if not config.pre_norm:  # which it has behind both in any case
    network.encoder.norm = network.decoder.norm = None
table = nn.Embedding(config.vocabulary, config.hidden)

#: our name -> their tensor, and which of the three matrices in it
theirs = {}
for parameter in parameters:
    layer, _, last = parameter.name.rpartition(".")
    side, name = ".".join(layer.split(".")[:3]), ".".join(layer.split(".")[3:])
    attention, _, part = name.partition(".")
    if parameter.name == "embedding.weight":
        found = table.weight, None
    elif part in ("query", "key", "value"):
        owner = network.get_submodule(f"{side}.{ATTENTION[attention]}")
        found = owner.in_proj_weight, ("query", "key", "value").index(part)
    else:
        path = ".".join(one for one in (side, NAMES.get(name, name)) if one)
        found = network.get_submodule(path).get_parameter(last), None
    theirs[parameter.name] = found


def own(tensor, third):
    return tensor if third is None else tensor.chunk(3)[third]


with torch.no_grad():
    for tensor in network.parameters():
        tensor.zero_()  # biases of attention, which ours has not
    for parameter in parameters:
        own(*theirs[parameter.name]).copy_(torch.from_numpy(initial(parameter, seed, "float64")))


def embedded(tokens):
    places = torch.zeros(config.sequence, config.hidden)
    half = config.hidden // 2
    for place in range(config.sequence):
        for channel in range(half):
            angle = place / 10000 ** (channel / (half - 1))
            places[place, channel], places[place, half + channel] = math.sin(angle), math.cos(angle)
    return table(torch.from_numpy(tokens).long()) * math.sqrt(config.hidden) + places


batch = family.batch(config, batch_size, seed, 0)
padding = torch.arange(config.sequence) >= torch.from_numpy(batch["source_lengths"])[:, None]
later = nn.Transformer.generate_square_subsequent_mask(config.sequence)
masks = dict(tgt_mask=later, src_key_padding_mask=padding, memory_key_padding_mask=padding)
logits = network(embedded(batch["source"]), embedded(batch["target"]), **masks) @ table.weight.T
real = torch.from_numpy(batch["target_weights"]).bool()
labels = torch.where(real, torch.from_numpy(batch["labels"]).long(), -100)  # which it leaves out
loss = nn.CrossEntropyLoss(label_smoothing=config.label_smoothing)(logits.flatten(0, 1), labels.flatten())
loss.backward()

found = {"loss": numpy.array(loss.item()), "logits/logits": sketch("logits", logits.detach().numpy())}
for parameter in parameters:
    tensor, third = theirs[parameter.name]
    found["gradient/" + parameter.name] = sketch(parameter.name, own(tensor.grad, third).numpy())
numpy.savez(out, **found)
