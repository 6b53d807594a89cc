"""What all networks share in TensorFlow: set-up, weights, batches, and the training step."""

import contextlib
import os
import tempfile
from importlib import metadata

import numpy
import tensorflow as tf

from dlperf.adapters import base, compression
from dlperf.adapters.tensorflow import communication, graph
from dlperf.adapters.tensorflow.compression import Deep
from dlperf.adapters.tensorflow.optimizers import LossScale, rescaled
from dlperf.models.parameters import initial

#: of convolutions and matrix products; weights are float32 (float64) variables
DTYPES = {
    "fp64": tf.float64,
    "fp32": tf.float32,
    "tf32": tf.float32,
    "amp_fp16": tf.float16,
    "amp_bf16": tf.bfloat16,
}


def versions():
    build = tf.sysconfig.get_build_info()
    found = {"tensorflow": tf.__version__}
    with contextlib.suppress(metadata.PackageNotFoundError):  # in its own environment only
        found["horovod"] = metadata.version("horovod")
    with contextlib.suppress(metadata.PackageNotFoundError):
        found["dali"] = metadata.version("nvidia-dali-cuda120")
    for name in ("cuda_version", "cudnn_version"):
        if build.get(name):
            found[name.replace("_version", "")] = build[name]
    return found


def product(job, size):
    """A product of two matrices of size x size in the type of the network's large ones, as a call."""
    ones = tf.ones((size, size), DTYPES[job.precision])
    multiply = tf.function(tf.linalg.matmul)
    return lambda: done(multiply(ones, ones))


def copy(job, count):
    """Reads count values of float32 and writes as many, as a call."""
    ones = tf.ones(count)
    return lambda: done(ones + 1)


def done(tensor):
    """When its device has done all that was enqueued."""
    with tf.device(tensor.device):
        tf.raw_ops.SyncDevice()


def configure(job, ranks):
    """Threads, TF32, the GPU of this rank and the group of ranks, before the first tensor.

    Returns the strategy; None for one rank.
    """
    # One pool computes inside an op, the other runs ops side by side: on a CPU, more than one of those adds threads.
    # For a GPU they enqueue kernels, of which a step with compile=off has a thousand.
    tf.config.threading.set_intra_op_parallelism_threads(job.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1 if job.device == "cpu" else job.threads)
    tf.random.set_seed(job.dropout_seed + ranks.rank)  # of dropout
    tf.config.experimental.enable_tensor_float_32_execution(job.precision == "tf32")
    gpus = tf.config.list_physical_devices("GPU")
    if job.device == "cpu":
        tf.config.set_visible_devices([], "GPU")
    else:
        base.need_gpu(f"TensorFlow {tf.__version__}", tf.test.is_built_with_cuda(), lambda: len(gpus), ranks)
        tf.config.set_visible_devices(gpus[ranks.local_rank], "GPU")
        tf.config.experimental.set_memory_growth(gpus[ranks.local_rank], True)
    if ranks.world_size == 1:
        return None
    return communication.join(job, ranks)


#: canonical layout -> TensorFlow's, by kind: convolutions HWIO, dense (in, out)
AXES = {"conv": (2, 3, 1, 0), "dense": (1, 0)}


def load(job):
    """Canonical name -> variable with the initial value of dlperf.models."""
    weights = {}
    for parameter in base.parameters(job):
        value = initial(parameter, job.seed, job.weights_dtype)
        value = value.transpose(AXES.get(parameter.kind, range(value.ndim)))
        weights[parameter.name] = tf.Variable(value, trainable=parameter.trained, name=parameter.name)
    return weights


def canonical(parameter, value):
    """A parameter's name, and a tensor in TensorFlow's layout as a numpy array in the canonical one. tf.transpose is
    faster than numpy's."""
    axes = AXES.get(parameter.kind, range(len(value.shape)))
    return parameter.name, tf.transpose(value, numpy.argsort(axes)).numpy()


class Feed(base.Feed):
    def __init__(self, job, ranks):
        self.device = "/GPU:0" if job.device == "cuda" else "/CPU:0"
        self._dtype = job.weights_dtype
        super().__init__(job, ranks)

    def _place(self, batch):
        with tf.device(self.device):
            return super()._place(batch)

    def _tensor(self, array):
        if array.dtype.kind == "f":
            array = array.astype(self._dtype)
        if array.ndim == 4:
            array = numpy.ascontiguousarray(array.transpose(0, 2, 3, 1))
        return tf.identity(array)


class Trainer(base.Trainer):
    """One network, its loss and its optimizer in one tf.function.

    With a strategy too, variables are plain ones, equal from the start and kept so by equal updates. Those of its scope
    are for several devices in one process: they want to reduce each assignment again, BatchNorm's statistics as well.

    strategy: what averages the gradients of several ranks, else None. loss: network, batch -> scalar, logits.
    effective: what the family adds to the facts that this class reads back.
    """

    def __init__(self, job, strategy, network, loss, optimizer, feed, effective):
        super().__init__(job, feed, effective)
        # AutoGraph writes what it converts to files, and removes them at an exit that a worker does not take
        self._scratch = tempfile.TemporaryDirectory(prefix="dlperf-")
        tempfile.tempdir = self._scratch.name
        self._strategy, self._network, self._loss, self._optimizer = strategy, network, loss, optimizer
        self._parameters = [parameter for parameter in base.parameters(job) if parameter.trained]
        self._weights = [network.weights[parameter.name] for parameter in self._parameters]
        self._scale = LossScale() if job.precision == "amp_fp16" else None
        self._deep = Deep(job, strategy, optimizer) if strategy and compression.asked(job) == "dgc" else None
        self._traced = None
        xla = job.options["compile"] == "on"
        self._train = self._compiled(xla)
        self.parameter_count = sum(weight.shape.num_elements() for weight in self._weights)
        self._gradient_bytes = self.parameter_count * self._weights[0].dtype.size
        plain = "tf.function (grappler, oneDNN)" if job.device == "cpu" else "tf.function (grappler)"
        self.effective["compile"] = "xla" if xla else plain
        self.effective["threads"] = str(tf.config.threading.get_intra_op_parallelism_threads())
        if job.device == "cuda":
            self.effective["device_memory"] = "most bytes that TensorFlow's allocator gave out (get_memory_info)"
        if strategy:
            between = self._deep or strategy
            self.effective["communication"] = f"{between.description}, {self._weights[0].dtype.name}"
            self.effective.update(compression.effective(job))
            if xla:
                self.effective["compile"] = "xla, the all-reduce apart"

    @property
    def gradient_bytes(self):
        return self._deep.sent_bytes if self._deep else self._gradient_bytes

    def _compiled(self, xla):
        """The whole step as one tf.function. TensorFlow has no ring that XLA compiles, only NCCL: with several ranks,
        what comes before the gradients are added up is compiled, and what comes after."""
        if self._strategy is None:
            return tf.function(self._train, jit_compile=xla)
        if self._deep:
            return self._deep.compiled(self._differentiate, self._trace)
        if xla:
            self._differentiate = tf.function(self._differentiate, jit_compile=True)
            self._update = tf.function(self._update, jit_compile=True)
        replica = self._train
        return tf.function(lambda batch: self._strategy.run(replica, batch))

    def _step(self, batch):
        self._traced = None  # room for this step's
        loss = self._train(batch)
        if self._job.trace_steps:
            loss, self._traced = loss
        return loss

    def _train(self, batch):
        loss, logits, gradients = self._differentiate(batch)
        if self._strategy:
            gradients = self._strategy.add_up(gradients)
        traced = self._trace(logits, gradients) if self._job.trace_steps else None
        self._update(gradients)
        return loss if traced is None else (loss, traced)

    def _differentiate(self, batch):
        with tf.GradientTape() as tape:
            loss, logits = self._loss(self._network, batch)
            scaled = loss * self._scale.scale if self._scale else loss
            if self._strategy and not self._deep:  # the gradients' sum over the ranks is then that of their mean loss
                scaled /= self._strategy.size
        return loss, logits if self._job.trace_steps else None, tape.gradient(scaled, self._weights)

    def _update(self, gradients):
        with tf.name_scope("optimizer"):
            gradients, finite = rescaled(gradients, self._scale, self._job.clip_norm)
            self._optimizer.apply(gradients, finite)
            if self._scale:
                self._scale.update(finite)

    def _trace(self, logits, gradients):
        """What the step hands out beside its loss, for checking."""
        if self._scale:
            gradients = [gradient / self._scale.scale for gradient in gradients]
        return logits, gradients

    def _observe(self, batch):
        self.shapes = self._network.shapes
        dtype = self._network.compute_dtype.name
        if self._job.device == "cuda":
            dtype = self._arithmetic(dtype)
        self.effective["compute_dtype"] = dtype
        self.effective.update(graph.asked(self._train.get_concrete_function(batch).graph, self._job))
        if self._scale:
            self.effective["loss_scale"] = f"dynamic, {float(self._scale.scale):g} after the first step"

    def _arithmetic(self, dtype):
        """What products of this type are on CUDA; into what they sum up, where not XLA but variables decide."""
        if dtype == "float32" and tf.config.experimental.tensor_float_32_execution_enabled():
            return "tf32"
        if dtype == "float16":
            wide = {os.environ.get(f"TF_FP16_{one}_USE_FP32_COMPUTE", "true") for one in ("MATMUL", "CONV")}
            xla = self.effective["compile"].startswith("xla")
            self.effective["accumulation"] = "float32" if xla or wide <= {"true", "1"} else "float16"
        return dtype

    def wait(self):
        # On CPU a tf.function has run when it returns; on GPU this waits for all streams. Not sync_devices of tf.test,
        # which asks the devices of all ranks.
        with tf.device(self._feed.device):
            tf.raw_ops.SyncDevice()

    def read(self, loss):
        return float(loss)

    def all_reduce(self, count):
        return communication.all_reduce(self._strategy, count)

    def parameters(self):
        for parameter in base.parameters(self._job):
            yield canonical(parameter, self._network.weights[parameter.name])

    def logits(self):
        for name, value in zip(base.logits(self._job), self._traced[0]):
            yield name, value.numpy()

    def gradients(self):
        for parameter, gradient in zip(self._parameters, self._traced[1]):
            if isinstance(gradient, tf.IndexedSlices):
                yield parameter.name, base.summed(gradient.indices.numpy(), gradient.values.numpy())
            else:
                yield canonical(parameter, gradient)

    def moments(self):
        return {moment: map(canonical, self._parameters, held) for moment, held in self._optimizer.moments().items()}

    def peak_memory(self):
        return tf.config.experimental.get_memory_info("GPU:0")["peak"] if self._job.device == "cuda" else None

    def close(self):
        if self._strategy:
            self._strategy.close()
        tempfile.tempdir = None
        self._scratch.cleanup()
