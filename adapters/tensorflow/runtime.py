"""What ResNet and BERT share in TensorFlow: set-up, weights, batches, optimizers, and the training step."""

import contextlib
import os
import signal
from importlib import metadata

import numpy
import tensorflow as tf
from tensorflow.python.eager import context

from dlperf import models
from dlperf.adapters import horovod
from dlperf.adapters.api import Unsupported, described
from dlperf.adapters.ranks import interface
from dlperf.models.batches import Batches
from dlperf.models.parameters import initial

#: of convolutions and matrix products; weights are float32 (float64) variables
DTYPES = {"fp64": tf.float64, "amp_fp16": tf.float16, "amp_bf16": tf.bfloat16}
#: canonical layout -> TensorFlow's, by kind: convolutions HWIO, dense (in, out)
AXES = {"conv": (2, 3, 1, 0), "dense": (1, 0)}
#: Gradients are added up in packs of at least this size, so that the first are under way during the backward pass. Over
#: gRPC a step of bert_base took 2.6 s of CPU time with packs of 4 MiB, 2.7 s with 32 and 3.2 s with 128.
PACK_BYTES = {"cpu": 2**22, "cuda": 2**25}
#: A rank whose process ended is missed at once, one whose host is gone after this. TensorFlow's 10 s were not enough
#: for bert_base on a busy machine.
SILENCE_SECONDS = 60


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
    ones = tf.ones((size, size), DTYPES.get(job.precision, tf.float32))
    multiply = tf.function(tf.linalg.matmul)
    return lambda: multiply(ones, ones).numpy()


def configure(job, ranks):
    """Threads, TF32, the GPU of this rank and the group of ranks, before the first tensor.

    Returns the strategy; None for one rank.
    """
    # One pool computes inside an op, the other runs ops side by side: more than one of those would add threads.
    tf.config.threading.set_intra_op_parallelism_threads(job.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.random.set_seed(job.seed + ranks.rank)  # of dropout
    tf.config.experimental.enable_tensor_float_32_execution(job.precision == "tf32")
    gpus = tf.config.list_physical_devices("GPU")
    if job.device == "cpu":
        tf.config.set_visible_devices([], "GPU")
    else:
        tf.config.set_visible_devices(gpus[ranks.local_rank], "GPU")
        tf.config.experimental.set_memory_growth(gpus[ranks.local_rank], True)
    if ranks.world_size == 1:
        return None
    return (Horovod if job.options["communication"] == "horovod" else MultiWorker)(job, ranks)


class MultiWorker:
    """MultiWorkerMirroredStrategy over all ranks: NCCL between GPUs, TensorFlow's own rings over gRPC between CPUs."""

    def __init__(self, job, ranks):
        os.environ.update(no_grpc_proxy=",".join(sorted(set(ranks.addresses))))  # gRPC would ask a proxy of the web
        network = interface(ranks.addresses[ranks.rank])
        if network and ranks.nnodes > 1:
            os.environ.setdefault("NCCL_SOCKET_IFNAME", network)
        cluster = tf.distribute.cluster_resolver.SimpleClusterResolver(  # what TF_CONFIG would say
            tf.train.ClusterSpec({"worker": ranks.endpoints}),
            task_type="worker",
            task_id=ranks.rank,
            num_accelerators={"GPU": 1 if job.device == "cuda" else 0},
            rpc_layer="grpc",
        )
        options = tf.distribute.experimental.CommunicationOptions(
            bytes_per_pack=PACK_BYTES[job.device], implementation="NCCL" if job.device == "cuda" else "RING"
        )
        await_silent_ranks(ranks)
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster, options)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # which TensorFlow took for a notice to save its work
        self.size = ranks.world_size
        transport = "NCCL" if job.device == "cuda" else f"ring, {cluster.rpc_layer}"
        self.description = f"MultiWorkerMirroredStrategy ({transport})"

    def run(self, function, *arguments):
        """In a tf.function: what `function` returns, where it may add up."""
        return self._strategy.run(function, arguments)

    def add_up(self, values):
        """In `run`: the sum over the ranks of each of a list of tensors."""
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, values)

    def close(self):
        pass


def await_silent_ranks(ranks):
    """Set the coordination service up as the strategy would, which then leaves it alone, but for SILENCE_SECONDS."""
    jobs = tf.compat.v1.ConfigProto().experimental.coordination_config.coordinated_job_list
    jobs.add(name="worker", num_tasks=ranks.world_size)
    context.context().configure_coordination_service(
        service_type="standalone",
        service_leader="/job:worker/replica:0/task:0",
        heartbeat_timeout_in_ms=1000 * SILENCE_SECONDS,
        coordinated_jobs=list(jobs),
    )


class Horovod:
    """The same, by Horovod."""

    def __init__(self, job, ranks):
        import horovod.tensorflow as hvd

        if job.options["compile"] == "on":
            raise Unsupported("Horovod has no all-reduce that XLA compiles on the CPU")
        horovod.prepare(ranks, job.meeting_seconds)
        hvd.init()
        self._hvd, self.size = hvd, ranks.world_size
        self.description = f"horovod.tensorflow.grouped_allreduce ({'nccl' if hvd.nccl_built() else 'gloo'})"

    def run(self, function, *arguments):
        return function(*arguments)

    def add_up(self, values):
        return self._hvd.grouped_allreduce([tf.convert_to_tensor(value) for value in values], op=self._hvd.Sum)

    def close(self):
        self._hvd.shutdown()


def load(job):
    """Canonical name -> variable with the initial value of dlperf.models."""
    dtype = tf.float64 if job.precision == "fp64" else tf.float32
    weights = {}
    for parameter in models.family(job.model).parameters(models.config(job.model)):
        value = initial(parameter, job.seed, dtype.as_numpy_dtype)
        value = value.transpose(AXES.get(parameter.kind, range(value.ndim)))
        weights[parameter.name] = tf.Variable(value, trainable=parameter.trained, name=parameter.name)
    return weights


def canonical(parameter, value):
    """A tensor in TensorFlow's layout as a numpy array in the canonical one. tf.transpose is faster than numpy's."""
    axes = AXES.get(parameter.kind, range(len(value.shape)))
    return tf.transpose(value, numpy.argsort(axes)).numpy()


class Feed:
    """Batches as tensors: synthetic ones wait on the device, rows of a data folder are copied at each step."""

    def __init__(self, job, ranks):
        self._batches = Batches(job, ranks)
        self.device = "/GPU:0" if job.device == "cuda" else "/CPU:0"
        self._dtype = "float64" if job.precision == "fp64" else "float32"
        self._ready = [self._place(batch) for batch in self._batches.pool()] if self._batches.synthetic else []
        self.input_seconds = None
        count = len(self._ready)
        self.description = f"synthetic, {count} batches on the device" if count else f"rows of {job.data_dir}"

    def __getitem__(self, step):
        return self._ready[step % len(self._ready)] if self._ready else self._place(self._batches[step])

    def _place(self, batch):
        with tf.device(self.device):
            return {name: self._tensor(array) for name, array in batch.items()}

    def _tensor(self, array):
        if array.dtype.kind == "f":
            array = array.astype(self._dtype)
        if array.ndim == 4:
            array = numpy.ascontiguousarray(array.transpose(0, 2, 3, 1))
        return tf.identity(array)


class SGD:
    """v = momentum * v + g + weight_decay * w; w -= learning_rate * v."""

    kernel = "ResourceApplyMomentum"

    def __init__(self, recipe, weights, decayed):
        self._recipe, self._weights, self._decayed = recipe, weights, decayed
        self._velocity = [zeros(weight) for weight in weights]

    def apply(self, gradients, finite):
        """finite: whether to step at all; None: yes."""
        dtype = self._weights[0].dtype
        rate = unless(finite, 0.0, self._recipe.learning_rate, dtype)
        momentum = unless(finite, 1.0, self._recipe.momentum, dtype)
        decay = unless(finite, 0.0, self._recipe.weight_decay, dtype)
        for weight, velocity, decayed, gradient in zip(self._weights, self._velocity, self._decayed, gradients):
            if decayed:
                gradient += decay * weight
            tf.raw_ops.ResourceApplyMomentum(
                var=weight.handle, accum=velocity.handle, lr=rate, grad=gradient, momentum=momentum
            )


class AdamW:
    """Adam with bias correction and decoupled weight decay.

    The kernel takes w -= lr * m / (sqrt(v) + epsilon). With c1 = 1 - beta1^t and c2 = 1 - beta2^t,
    learning_rate * sqrt(c2) / c1 for lr and eps * sqrt(c2) for epsilon make that the formula of dlperf.models.bert.
    """

    kernel = "ResourceApplyAdam"

    def __init__(self, recipe, weights, decayed):
        self._recipe, self._weights, self._decayed = recipe, weights, decayed
        self._first = [zeros(weight) for weight in weights]
        self._second = [zeros(weight) for weight in weights]
        # What the kernel reads: 0.999 in float32 is 1.3e-8 off, 1 - 0.999 in it is 4.7e-5 off.
        self._beta1, self._beta2 = (
            float(weights[0].dtype.as_numpy_dtype(beta)) for beta in (recipe.beta1, recipe.beta2)
        )
        self._steps = tf.Variable(0.0, trainable=False, dtype=tf.float64)

    def apply(self, gradients, finite):
        """finite: whether to step at all; None: yes."""
        recipe, dtype = self._recipe, self._weights[0].dtype
        step = self._steps.assign_add(unless(finite, 0.0, 1.0, tf.float64))
        correction1, correction2 = 1 - self._beta1**step, tf.sqrt(1 - self._beta2**step)
        rate = recipe.learning_rate * correction2 / correction1
        keep = unless(finite, 1.0, 1 - recipe.learning_rate * recipe.weight_decay, dtype)
        scalars = {
            "lr": unless(finite, 0.0, tf.cast(rate, dtype), dtype),
            "epsilon": tf.cast(recipe.eps * correction2, dtype),
            "beta1": unless(finite, 1.0, self._beta1, dtype),
            "beta2": unless(finite, 1.0, self._beta2, dtype),
            "beta1_power": tf.zeros((), dtype),
            "beta2_power": tf.zeros((), dtype),
        }
        for weight, first, second, decayed, gradient in zip(
            self._weights, self._first, self._second, self._decayed, gradients
        ):
            if decayed:
                weight.assign(weight * keep)
            tf.raw_ops.ResourceApplyAdam(var=weight.handle, m=first.handle, v=second.handle, grad=gradient, **scalars)


def zeros(weight):
    return tf.Variable(tf.zeros(weight.shape, weight.dtype), trainable=False)


def unless(finite, otherwise, value, dtype):
    """`value`, or `otherwise` in a step whose gradients are not finite: skipped without asking the device."""
    value = tf.convert_to_tensor(value, dtype)
    return value if finite is None else tf.where(finite, value, tf.constant(otherwise, dtype))


class LossScale:
    """Dynamic: halved when gradients are not finite, doubled after 2000 steps in which they were."""

    INTERVAL = 2000

    def __init__(self):
        self.scale = tf.Variable(65536.0, trainable=False)
        self._good = tf.Variable(0, trainable=False)

    def update(self, finite):
        good = tf.where(finite, self._good + 1, 0)
        grown = tf.where(good == self.INTERVAL, self.scale * 2, self.scale)
        self.scale.assign(tf.where(finite, grown, self.scale / 2))
        self._good.assign(tf.where(good == self.INTERVAL, 0, good))


class Trainer:
    """One network, its loss and its optimizer in one tf.function.

    With a strategy too, variables are plain ones, equal from the start and kept so by equal updates. Those of its scope
    are for several devices in one process: they want to reduce each assignment again, BatchNorm's statistics as well.

    loss: network, batch -> scalar, logits. optimizer: a class of this module. feed: Feed, or the loader of images.
    effective: what the family adds.
    """

    def __init__(self, job, ranks, strategy, weights, network, loss, optimizer, feed, clip_norm, effective):
        self._job, self._variables, self._network, self._loss = job, weights, network, loss
        self._strategy, self._clip_norm = strategy, clip_norm
        every = models.family(job.model).parameters(models.config(job.model))
        self._parameters = [parameter for parameter in every if parameter.trained]
        self._weights = [weights[parameter.name] for parameter in self._parameters]
        recipe = models.family(job.model).optimizer(job.batch_size * ranks.world_size)
        self._optimizer = optimizer(recipe, self._weights, [parameter.decayed for parameter in self._parameters])
        self._scale = LossScale() if job.precision == "amp_fp16" else None
        self._feed = feed
        self._steps = 0
        self._traced = None
        xla = job.options["compile"] == "on"
        self._train = self._compiled(xla)
        self.shapes = network.shapes
        self.parameter_count = sum(weight.shape.num_elements() for weight in self._weights)
        self.gradient_bytes = self.parameter_count * self._weights[0].dtype.size
        self.effective = {
            "precision": job.precision,
            "compile": "xla" if xla else "tf.function (grappler, oneDNN)",
            "threads": str(tf.config.threading.get_intra_op_parallelism_threads()),
            "optimizer": optimizer.kernel,
            "loss_scale": "none",
            **described(feed, job),
            **effective,
        }
        if strategy:
            self.effective["communication"] = f"{strategy.description}, {self._weights[0].dtype.name}"
            if xla:
                self.effective["compile"] = "xla, the all-reduce apart"

    def _compiled(self, xla):
        """The whole step as one tf.function. TensorFlow has no ring that XLA compiles, only NCCL: with several ranks,
        what comes before the gradients are added up is compiled, and what comes after."""
        if self._strategy is None:
            return tf.function(self._train, jit_compile=xla)
        if xla:
            self._differentiate = tf.function(self._differentiate, jit_compile=True)
            self._update = tf.function(self._update, jit_compile=True)
        replica = self._train
        return tf.function(lambda batch: self._strategy.run(replica, batch))

    def step(self):
        self._traced = None  # room for this step's
        loss = self._train(self._feed[self._steps])
        if self._job.trace_steps:
            loss, self._traced = loss
        self._steps += 1
        if self._steps == 1:
            self._observe()
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
            if self._strategy:  # the gradients' sum over the ranks is then that of their mean loss
                scaled /= self._strategy.size
        return loss, logits if self._job.trace_steps else None, tape.gradient(scaled, self._weights)

    def _update(self, gradients):
        gradients, finite = self._rescale(gradients)
        self._optimizer.apply(gradients, finite)
        if self._scale:
            self._scale.update(finite)

    def _trace(self, logits, gradients):
        """What the step hands out beside its loss, for checking."""
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        if self._scale:
            gradients = [gradient / self._scale.scale for gradient in gradients]
        return logits, gradients

    def _rescale(self, gradients):
        """Undo the loss scale and clip, in one pass over the gradients. Returns them and whether they are finite."""
        if self._scale is None and self._clip_norm is None:
            return gradients, None
        norm = tf.linalg.global_norm(gradients)
        scale = 1 / self._scale.scale if self._scale else tf.ones((), norm.dtype)
        factor = scale if self._clip_norm is None else tf.minimum(scale, self._clip_norm / norm)
        if self._scale is None:
            return [gradient * factor for gradient in gradients], None
        finite = tf.math.is_finite(norm)
        factor = tf.where(finite, factor, 0.0)
        return [tf.math.multiply_no_nan(gradient, factor) for gradient in gradients], finite

    def _observe(self):
        """Read back what the first step really did."""
        name = self._network.compute_dtype.name
        self.effective["compute_dtype"] = "tf32" if self._job.precision == "tf32" else name
        if self._scale:
            self.effective["loss_scale"] = f"dynamic, {float(self._scale.scale):g} after the first step"

    @property
    def input_seconds(self):
        return self._feed.input_seconds

    def fetch(self):
        self._feed[self._steps]
        self.wait()

    def wait(self):
        # On CPU a tf.function has run when it returns; on GPU this waits for all streams. Not sync_devices of tf.test,
        # which asks the devices of all ranks.
        with tf.device(self._feed.device):
            tf.raw_ops.SyncDevice()

    def read(self, loss):
        return float(loss)

    def all_reduce(self, count):
        ones = tf.ones(count)
        total = tf.function(lambda: self._strategy.run(self._strategy.add_up, [ones])[0][0])
        return lambda: float(total())

    def parameters(self):
        for parameter in models.family(self._job.model).parameters(models.config(self._job.model)):
            yield parameter.name, canonical(parameter, self._variables[parameter.name])

    def logits(self):
        names = models.family(self._job.model).logits(self._network.config)
        for name, value in zip(names, self._traced[0]):
            yield name, value.numpy()

    def gradients(self):
        for parameter, gradient in zip(self._parameters, self._traced[1]):
            yield parameter.name, canonical(parameter, gradient)

    def peak_memory(self):
        return tf.config.experimental.get_memory_info("GPU:0")["peak"] if self._job.device == "cuda" else None

    def close(self):
        if self._strategy:
            self._strategy.close()
