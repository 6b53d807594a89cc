"""One step of PaddlePaddle's own resnet50 or vgg16 with our weights: `oracle_paddle.py MODEL BATCH_SIZE SEED OUT.npz`.

For CIFAR-10 it is vgg16 with BatchNorm, with other dense layers behind it.

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
parameters = family.parameters(config)
STATISTICS = {"running_mean": "_mean", "running_var": "_variance"}

paddle.set_default_dtype("float64")
if model.startswith("vgg"):
    network = paddle.vision.models.vgg16(num_classes=config.classes)
    network.eval()  # without dropout; all else is as in training
    if "cifar" in model:
        features = paddle.vision.models.vgg16(batch_norm=True).features
        dense = [paddle.nn.Linear(512, 512), paddle.nn.BatchNorm1D(512), paddle.nn.ReLU(), paddle.nn.Linear(512, 512)]
        network = paddle.nn.Sequential(features, paddle.nn.Flatten(), *dense, paddle.nn.Linear(512, config.classes))
        network.train()
    trained = [parameter.name for parameter in parameters if parameter.trained]
    theirs = [tensor for tensor in network.parameters() if not tensor.stop_gradient]
    tensors = dict(zip(trained, theirs, strict=True))
else:
    network = paddle.vision.models.resnet50(num_classes=config.classes)
    network.train()
    state, tensors = network.state_dict(), {}
    for parameter in parameters:
        layer, _, last = parameter.name.rpartition(".")
        tensors[parameter.name] = state[f"{layer}.{STATISTICS.get(last, last)}"]
for parameter in parameters:
    if parameter.name not in tensors:
        continue  # statistics, which a first step does not read
    value = initial(parameter, seed, "float64")
    tensors[parameter.name].set_value(value.T if parameter.kind == "dense" else value)

batch = family.batch(config, batch_size, seed, 0)
logits = network(paddle.to_tensor(batch["images"].astype("float64")))
smoothing = getattr(config, "label_smoothing", 0.0)
targets = numpy.full((batch_size, config.classes), smoothing / config.classes)
targets[numpy.arange(batch_size), batch["labels"]] += 1 - smoothing
loss = F.cross_entropy(logits, paddle.to_tensor(targets), soft_label=True)
loss.backward()

found = {"loss": numpy.array(loss.item()), "logits/logits": sketch("logits", logits.numpy())}
for parameter in parameters:
    if parameter.trained:
        gradient = tensors[parameter.name].grad.numpy()
        gradient = gradient.T if parameter.kind == "dense" else gradient
        found["gradient/" + parameter.name] = sketch(parameter.name, gradient)
numpy.savez(out, **found)
