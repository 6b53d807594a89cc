"""What all networks share in NumPy: layers with their gradients written out, and the trainer."""

import copy
import functools

import numpy
import scipy

from dlperf.adapters import base
from dlperf.adapters.api import Unsupported
from dlperf.models.parameters import count, initial, random_state

#: what a large product computes in
DTYPES = {"fp64": "float64", "fp32": "float32", "amp_bf16": "bfloat16", "amp_fp16": "float16"}
#: of float32's 23 bits behind the point, how many a type of 16 bits lacks
LACKS = {"bfloat16": 16, "float16": 13}


def versions():
    return {"numpy": numpy.__version__, "scipy": scipy.__version__}


def configure(job, ranks):
    if job.device != "cpu" or ranks.world_size > 1:
        raise Unsupported("NumPy trains on one CPU")
    if job.precision not in DTYPES:
        raise Unsupported(f"{job.precision} is not written out in NumPy")


def rounded(x, dtype):
    """float32 values, rounded to the nearest of a type of 16 bits, ties to even: an array of the same shape and type.
    float16's range is left out: frameworks scale the loss so that gradients stay in it."""
    bits, lacks = numpy.ascontiguousarray(x, "float32").view("uint32"), LACKS[dtype]
    half = numpy.uint32((1 << (lacks - 1)) - 1)
    return ((bits + half + ((bits >> lacks) & 1)) >> lacks << lacks).view("float32")


class Layers:
    """The layers that networks are made of. Each method takes a step forward, and returns its output and a function
    that takes the gradient of the output and returns that of the input; gradients of weights go into `gradients`.

    weights: name -> array. In mixed precision operands and result of each product are rounded to 16 bits; all else is
    in the type of the weights.
    """

    def __init__(self, job, weights):
        self.weights, self.gradients = weights, {}
        self._random = random_state(job.dropout_seed, "dropout")
        self._narrow = functools.partial(rounded, dtype=DTYPES[job.precision]) if job.mixed else lambda x: x

    def product(self, a, b):
        return self._narrow(self._narrow(a) @ self._narrow(b))

    def add(self, name, gradient):
        """A gradient of a weight; of one that is used twice both parts add up."""
        self.gradients[name] = self.gradients[name] + gradient if name in self.gradients else gradient

    def dense(self, name, x):
        """x: (..., inputs) -> (..., outputs)."""
        return self.project(x, name + ".weight", name + ".bias")

    def project(self, x, weight, bias):
        """The same by the names of its weights; bias may be None."""
        rows, matrix = x.reshape(-1, x.shape[-1]), self.weights[weight]
        y = self.product(rows, matrix.T)
        if bias:
            y = y + self.weights[bias]

        def backward(dy):
            dy = dy.reshape(rows.shape[0], -1)
            self.add(weight, self.product(dy.T, rows))
            if bias:
                self.add(bias, dy.sum(0))
            return self.product(dy, matrix).reshape(x.shape)

        return y.reshape((*x.shape[:-1], -1)), backward

    def layer_norm(self, name, x, eps):
        """Over the last axis."""
        scale, shift = self.weights[name + ".weight"], self.weights[name + ".bias"]
        centred = x - x.mean(-1, keepdims=True)
        inverse = 1 / numpy.sqrt((centred * centred).mean(-1, keepdims=True) + x.dtype.type(eps))
        normal = centred * inverse

        def backward(dy):
            axes = tuple(range(dy.ndim - 1))
            self.add(name + ".weight", (dy * normal).sum(axes))
            self.add(name + ".bias", dy.sum(axes))
            d = dy * scale
            return inverse * (d - d.mean(-1, keepdims=True) - normal * (d * normal).mean(-1, keepdims=True))

        return normal * scale + shift, backward

    def look_up(self, tables, indices):
        """The sum of the tables' rows. tables: names; indices: for each an array of rows."""

        def backward(dy):
            for table, index in zip(tables, indices):
                gradient = numpy.zeros_like(self.weights[table])
                numpy.add.at(gradient, index, dy)
                self.add(table, gradient)

        return sum(self.weights[table][index] for table, index in zip(tables, indices)), backward

    def attend(self, q, k, v, mask, drop=lambda p: (p, lambda dp: dp)):
        """softmax(q k' / sqrt(size) + mask), dropped, times v: (batch, heads, sequence, size) each. Its backward
        gives the gradients of all three."""
        scale = q.dtype.type(q.shape[-1] ** -0.5)
        p = softmax(self.product(q, k.swapaxes(2, 3)) * scale + mask.astype(q.dtype))
        dropped, drop_back = drop(p)

        def backward(dy):
            dv = self.product(dropped.swapaxes(2, 3), dy)
            dp = drop_back(self.product(dy, v.swapaxes(2, 3)))
            ds = p * (dp - (dp * p).sum(-1, keepdims=True)) * scale
            return self.product(ds, k), self.product(ds.swapaxes(2, 3), q), dv

        return self.product(dropped, v), backward

    def drop(self, x, rate):
        """Dropout."""
        if not rate:
            return x, lambda dy: dy
        kept = (self._random.random_sample(x.shape) >= rate) / x.dtype.type(1 - rate)
        kept = kept.astype(x.dtype)
        return x * kept, lambda dy: dy * kept

    def parts(self):
        """The gradients of a step, which starts without."""
        found, self.gradients = self.gradients, {}
        return found


def softmax(x):
    e = numpy.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def cross_entropy(logits, labels, weights, smoothing=0.0):
    """The sum over rows of weight times cross-entropy, and its gradient. logits: (n, classes). labels, weights: (n,).
    smoothing: share of the target that is spread over all classes."""
    rows = numpy.arange(len(labels))
    shifted = logits - logits.max(1, keepdims=True)
    logarithms = shifted - numpy.log(numpy.exp(shifted).sum(1, keepdims=True))
    target = numpy.full(logits.shape, smoothing / logits.shape[1], logits.dtype)
    target[rows, labels] += 1 - smoothing
    loss = -(weights * (target * logarithms).sum(1)).sum()
    return loss, (numpy.exp(logarithms) - target) * weights[:, None]


def mean_cross_entropy(logits, labels, smoothing=0.0):
    """The mean cross-entropy of a batch, and its gradient. logits: (batch, classes)."""
    each = numpy.full(len(logits), 1 / len(logits), logits.dtype)
    return cross_entropy(logits, labels, each, smoothing)


class Feed(base.Feed):
    """Its first batch is that of the step that the option `step` names, where an audit begins there."""

    def __init__(self, job, ranks):
        self._dtype, self._first = job.weights_dtype, int(job.options.get("step", 0))
        super().__init__(job, ranks)

    def __getitem__(self, step):
        return super().__getitem__(self._first + step)

    def _tensor(self, array):
        return array.astype(self._dtype if array.dtype.kind == "f" else "int64")


class Trainer(base.Trainer):
    """network: a Layers with `step(batch) -> loss, logits`, which leaves `gradients`. update: takes weights, gradients
    and the step's number from 1, and changes the weights in place; `moments`: what it keeps, as api.Trainer has it, but
    each as a dict."""

    def __init__(self, job, ranks, network, update, effective):
        facts = {"compute_dtype": DTYPES[job.precision], "compile": "none", "threads": str(job.threads)}
        super().__init__(job, Feed(job, ranks), dict(facts, optimizer="NumPy", **effective))
        self._network, self._update = network, update
        self._logits, self._gradients = (), {}
        self.parameter_count = count(base.parameters(job))
        self.gradient_bytes = sum(network.weights[p.name].nbytes for p in base.parameters(job) if p.trained)

    def _step(self, batch):
        loss, self._logits = self._network.step(batch)
        gradients = self._network.parts()
        if self._job.trace_steps:
            self._gradients = copy.deepcopy(gradients)  # some updates change them
        self._update(self._network.weights, gradients, self._steps + 1)
        return loss

    def _observe(self, batch):
        self.shapes = self._network.shapes

    def wait(self):
        pass

    def read(self, loss):
        return float(loss)

    def parameters(self):
        return ((parameter.name, self._network.weights[parameter.name]) for parameter in base.parameters(self._job))

    def logits(self):
        return zip(base.logits(self._job), self._logits)

    def gradients(self):
        return ((p.name, self._gradients[p.name]) for p in base.parameters(self._job) if p.trained)

    def moments(self):
        return {moment: held.items() for moment, held in self._update.moments.items() if held}

    def peak_memory(self):
        return None

    def close(self):
        pass


def start(job):
    """The weights of dlperf.models, or those of the audit that the option `start` names: name -> array."""
    if "start" in job.options:
        with numpy.load(job.options["start"], allow_pickle=False) as file:
            return {p.name: file[p.name].astype(job.weights_dtype) for p in base.parameters(job)}
    return {parameter.name: initial(parameter, job.seed, job.weights_dtype) for parameter in base.parameters(job)}


def norm(gradients):
    """Of all together."""
    return numpy.sqrt(sum(numpy.vdot(g, g) for g in gradients.values()))


def decayed(job):
    """Names of the weights that decay."""
    return {parameter.name for parameter in base.parameters(job) if parameter.decayed}


def product(job, size):
    ones = numpy.ones((size, size), job.weights_dtype)
    return lambda: ones @ ones
