"""One step of GluonCV's SE-ResNeXt with our weights: `oracle_se.py MODEL BATCH_SIZE SEED OUT.npz`.

Writes the loss and the sketches of logits and gradients, as dlperf.adapters.trace does.
"""

import sys

import mxnet
import numpy
from gluoncv.model_zoo.resnext import ResNext

from dlperf import models
from dlperf.adapters.trace import sketch
from dlperf.models.parameters import initial

model, batch_size, seed, out = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
config, family = models.config(model), models.family(model)
parameters = family.parameters(config)


width = 64 * config.inner // config.groups
network = ResNext(config.blocks, config.groups, width, classes=config.classes, use_se=True)
network.initialize()
network.cast("float64")
batch = family.batch(config, batch_size, seed, 0)
images = mxnet.nd.array(batch["images"], dtype="float64")
network(images)  # shapes are known from here on
theirs = dict(zip([parameter.name for parameter in parameters], network.collect_params().values(), strict=True))
for parameter in parameters:
    tensor, value = theirs[parameter.name], initial(parameter, seed, "float64")
    assert tensor.shape[:2] == value.shape[:2], (parameter, tensor)
    # what squeezes and excites are convolutions of a pixel
    tensor.set_data(mxnet.nd.array(value.reshape(tensor.shape), dtype="float64"))

miss = config.label_smoothing / config.classes
targets = numpy.full((batch_size, config.classes), miss)
targets[numpy.arange(batch_size), batch["labels"]] += 1 - config.label_smoothing
with mxnet.autograd.record():
    logits = network(images)
    loss = -(mxnet.nd.array(targets, dtype="float64") * logits.log_softmax()).sum() / batch_size
loss.backward()

found = {"loss": numpy.array(loss.asscalar()), "logits/logits": sketch("logits", logits.asnumpy())}
for parameter in parameters:
    if parameter.trained:
        gradient = theirs[parameter.name].grad().asnumpy().reshape(parameter.shape)
        found["gradient/" + parameter.name] = sketch(parameter.name, gradient)
numpy.savez(out, **found)
