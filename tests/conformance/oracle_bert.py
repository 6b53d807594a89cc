"""One step of Hugging Face's BertForPreTraining with our weights: `oracle_bert.py MODEL BATCH_SIZE SEED OUT.npz`.

Writes the loss and the sketches of logits and gradients, as dlperf.adapters.trace does. Only the loss is ours: the
library's own averages over all masked words of a batch, without weights.
"""

import sys

import numpy
import torch
import torch.nn.functional as F
from transformers import BertConfig, BertForPreTraining

from dlperf import models
from dlperf.adapters.trace import sketch
from dlperf.models.parameters import initial

model, batch_size, seed, out = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
config, family = models.config(model), models.family(model)

network = BertForPreTraining(
    BertConfig(
        vocab_size=config.vocabulary,
        hidden_size=config.hidden,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        intermediate_size=config.intermediate,
        hidden_act="gelu",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=config.positions,
        type_vocab_size=config.token_types,
        layer_norm_eps=config.norm_eps,
        tie_word_embeddings=True,
    )
).double()
state = network.state_dict()
with torch.no_grad():
    for parameter in family.parameters(config):
        state[parameter.name].copy_(torch.from_numpy(initial(parameter, seed, "float64")))

batch = {name: torch.from_numpy(array).long() for name, array in family.batch(config, batch_size, seed, 0).items()}
inside = torch.arange(config.sequence)[None, :] < batch["lengths"][:, None]
result = network(input_ids=batch["input_ids"], token_type_ids=batch["token_type_ids"], attention_mask=inside.long())
rows = torch.arange(batch_size)[:, None]
mlm, nsp = result.prediction_logits[rows, batch["masked_positions"]], result.seq_relationship_logits
words = F.cross_entropy(mlm.flatten(0, 1), batch["masked_ids"].flatten(), reduction="none")
weights = batch["masked_weights"].flatten()
loss = (words * weights).sum() / weights.sum() + F.cross_entropy(nsp, batch["next_sentence_labels"])
loss.backward()

found = {"loss": numpy.array(loss.item())}
for name, value in (("mlm_logits", mlm), ("nsp_logits", nsp)):
    found["logits/" + name] = sketch(name, value.detach().numpy())
for name, weight in network.named_parameters():
    found["gradient/" + name] = sketch(name, weight.grad.numpy())
numpy.savez(out, **found)
