"""One step of Hugging Face's GPT2LMHeadModel with our weights: `oracle_gpt.py MODEL BATCH_SIZE SEED OUT.npz`.

Writes the loss and the sketches of logits and gradients, as dlperf.adapters.trace does.
"""

import sys

import numpy
import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

from dlperf import models
from dlperf.adapters.trace import sketch
from dlperf.models.parameters import initial

model, batch_size, seed, out = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
config, family = models.config(model), models.family(model)

network = GPT2LMHeadModel(
    GPT2Config(
        vocab_size=config.vocabulary,
        n_positions=config.positions,
        n_embd=config.hidden,
        n_layer=config.layers,
        n_head=config.heads,
        activation_function="gelu_new",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        layer_norm_epsilon=config.norm_eps,
        tie_word_embeddings=True,
    )
).double()
parameters = {parameter.name: parameter for parameter in family.parameters(config)}


def canonical(name, tensor):
    """Its dense layers are Conv1D, whose weights are (in, out)."""
    return tensor.T if parameters[name].kind == "dense" else tensor


with torch.no_grad():
    for name, weight in network.named_parameters():
        canonical(name, weight).copy_(torch.from_numpy(initial(parameters[name], seed, "float64")))

batch = {name: torch.from_numpy(array).long() for name, array in family.batch(config, batch_size, seed, 0).items()}
logits = network(input_ids=batch["input_ids"]).logits
loss = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
loss.backward()

found = {"loss": numpy.array(loss.item()), "logits/logits": sketch("logits", logits.detach().numpy())}
for name, weight in network.named_parameters():
    found["gradient/" + name] = sketch(name, numpy.ascontiguousarray(canonical(name, weight.grad).numpy()))
numpy.savez(out, **found)
