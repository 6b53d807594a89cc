"""One step of PaddlePaddle's own resnet50 with our weights: `oracle_resnet.py MODEL BATCH_SIZE SEED OUT.npz`.

Writes the loss and the sketches of logits and gradients, as dlperf.adapters.trace does.
"""

import sys

import numpy
import paddle
import paddle.nn.functional as F

from dlperf import models
from dlperf.adapters.trace import sketch
from dlperf.models.parameters import initial

model, batch_size, seed, out = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
config, family = models.config(model), models.family(model)
STATISTICS = {"running_mean": "_mean", "running_var": "_variance"}

paddle.set_default_dtype("float64")
network = paddle.vision.models.resnet50(num_classes=config.classes)
network.train()
state, tensors = network.state_dict(), {}
for parameter in family.parameters(config):
    layer, _, last = parameter.name.rpartition(".")
    tensor = tensors[parameter.name] = state[f"{layer}.{STATISTICS.get(last, last)}"]
    value = initial(parameter, seed, "float64")
    tensor.set_value(value.T if parameter.kind == "dense" else value)

batch = family.batch(config, batch_size, seed, 0)
logits = network(paddle.to_tensor(batch["images"].astype("float64")))
miss = config.label_smoothing / config.classes
targets = numpy.full((batch_size, config.classes), miss)
targets[numpy.arange(batch_size), batch["labels"]] += 1 - config.label_smoothing
loss = F.cross_entropy(logits, paddle.to_tensor(targets), soft_label=True)
loss.backward()

found = {"loss": numpy.array(loss.item()), "logits/logits": sketch("logits", logits.numpy())}
for parameter in family.parameters(config):
    if parameter.trained:
        gradient = tensors[parameter.name].grad.numpy()
        gradient = gradient.T if parameter.kind == "dense" else gradient
        found["gradient/" + parameter.name] = sketch(parameter.name, gradient)
numpy.savez(out, **found)
