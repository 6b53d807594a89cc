"""Parameter servers in TensorFlow: between-graph replication. Each worker has a graph of its own, whose tensors are on
the servers, and applies its gradients there when it has them. Of a table row r is on server r % servers; a tensor that
steps use whole is on one of them.

It is what TensorFlow's scripts of 2019 did, on tf.compat.v1. tf.distribute.ParameterServerStrategy, its successor, has
the same servers and no worker of its own: one coordinator hands out the steps of all.
"""

import math
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy
import tensorflow as tf

from dlperf.adapters import base
from dlperf.adapters.tensorflow import optimizers
from dlperf.adapters.tensorflow.runtime import AXES
from dlperf.models.parameters import count, initial

v1 = tf.compat.v1
#: steps of a worker that are under way at a time
AHEAD = 2
#: how stale pushes are counted to be, one by one; the last one stands for more
MOST_STALE = 1000
#: values that are handed to a server, or by it, at a time: each of its threads keeps what it once took for them
VALUES = 2**19


def serve(job, ranks):
    """See dlperf.adapters.api.ModelModule. Until each worker has said that it is done."""
    server = _server(job, ranks)
    with tf.Graph().as_default():
        done, counts = _done(ranks.rank, ranks), Counts(ranks.rank, job)
        with v1.Session(server.target) as session:
            for _ in ranks.workers:
                session.run(done.dequeue())
            updates, stale = session.run([counts.updates, counts.stale])
    return {"pushes": int(updates), "stale": {str(many): int(often) for many, often in enumerate(stale) if often}}


def _server(job, ranks):
    """This process's part of the cluster."""
    cluster = tf.train.ClusterSpec({"ps": list(ranks.servers), "worker": list(ranks.workers)})
    name = "ps" if ranks.role == "server" else "worker"
    threads = v1.ConfigProto(
        intra_op_parallelism_threads=job.threads, inter_op_parallelism_threads=max(2, len(ranks.workers))
    )
    return tf.distribute.Server(cluster, job_name=name, task_index=ranks.rank, config=threads)


def _on(server):
    return tf.device(f"/job:ps/task:{server}/cpu:0")


def _done(server, ranks):
    with _on(server):
        return v1.FIFOQueue(len(ranks.workers), [tf.int32], [()], shared_name=f"done{server}")


def _variable(name, shape, dtype):
    """Zeros. Not of v1.zeros_initializer: grappler makes a constant of these, which stays beside the variable."""

    def zeros(shape, dtype, **_):
        return tf.raw_ops.Empty(shape=shape, dtype=dtype, init=True)

    return v1.get_variable(name, shape, dtype, zeros, use_resource=True, trainable=False)


def _rows(shape):
    """How many of a tensor are handed over at a time."""
    return max(1, VALUES // math.prod(shape[1:]))


def _axes(parameter):
    """Of TensorFlow's layout, by the canonical one's."""
    return AXES.get(parameter.kind, range(len(parameter.shape)))


def _canonical(parameter, value):
    return numpy.ascontiguousarray(value.transpose(numpy.argsort(_axes(parameter))))


class Counts:
    """What a server knows of its updates: how many, and of how many it was behind, how often."""

    def __init__(self, server, job):
        with _on(server):
            self.updates = _variable(f"updates{server}", (), tf.int64)
            self.stale = _variable(f"stale{server}", (MOST_STALE + 1,), tf.int64)


class SGD:
    """w = w - rate * g. rates: of each tensor."""

    kernel = "SGD on the servers, of rows by scatter_sub"
    moments = ()

    def __init__(self, rates):
        self._rates = rates

    def __call__(self, name, tensor, moments, rows, gradient, step):
        """The operations that update a tensor, or its rows. moments: variables, by moment. step: that of the server."""
        if rows is None:
            return optimizers.descend(tensor, self._rates[name], gradient)
        return optimizers.descend_rows(tensor, self._rates[name], rows, gradient)


class LazyAdam:
    """As dlperf.models.ctr_dnn.Optimizer says, of the rows that a push has."""

    kernel = "Adam on the servers: ResourceApplyAdam, of the rows of a push scatter_update"
    moments = ("mean", "square")

    def __init__(self, recipe):
        self._recipe = recipe

    def __call__(self, name, tensor, moments, rows, gradient, step):
        held = tensor, moments["mean"], moments["square"]
        if rows is None:
            return optimizers.adam(self._recipe, step, *held, gradient)
        return optimizers.lazy_adam(self._recipe, step, *held, rows, gradient)


class Shard(NamedTuple):
    """What one server keeps of a tensor: of a table its rows, else all of it. moments: of it, by name."""

    server: int
    tensor: Any
    moments: Any


class Pulled(NamedTuple):
    """What a step has of a shard. rows: of a table, their numbers on the server; else None."""

    shard: Shard
    rows: Any
    values: Any


class Trainer(base.Trainer):
    """A worker. network, loss, looked_up: as in dlperf.adapters.tensorflow.word2vec; what looked_up does not name is
    used whole; None: all is. update: a SGD or LazyAdam. Statistics are a worker's own: with them, and in trace_steps,
    one step is under way at a time."""

    def __init__(self, job, ranks, network, loss, looked_up, update, effective):
        super().__init__(job, Feed(job, ranks), effective)
        self._network, self._ranks, self._update = network, ranks, update
        self.parameter_count = count(base.parameters(job))
        self.gradient_bytes, self.pushes, self._meetings = 0, 0, 0
        self._logits, self._gradients, self._under_way = None, {}, []
        self._read = {}  # by a server's tensor: where to begin, and rows from there on
        self._trained = [one for one in base.parameters(job) if one.trained]
        alone = job.trace_steps > 0 or len(self._trained) < len(base.parameters(job))
        ahead = 1 if alone else AHEAD
        self._pool, self._ahead = ThreadPoolExecutor(ahead), ahead
        self._server = _server(job, ranks)  # kept, or it stops
        # else a worker's session is over when another worker is
        own = v1.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{ranks.rank}"])
        self._session = v1.Session(self._server.target, graph=tf.Graph(), config=own)
        # else what has no device is worker 0's
        with self._session.graph.as_default(), tf.device(f"/job:worker/task:{ranks.rank}/cpu:0"):
            batch = self._feed[0]
            self._inputs = {name: v1.placeholder(array.dtype, array.shape) for name, array in batch.items()}
            v1.set_random_seed(job.dropout_seed + ranks.rank)  # of dropout
            chosen = looked_up(network.config, self._inputs) if looked_up else {}
            self._place(chosen)
            self._build(loss, chosen)
            self._reach(job.meeting_seconds)
            self._start()
        self.effective.update(
            compile="graph (grappler)",
            threads=str(job.threads),
            optimizer=update.kernel,
            communication="parameter servers (async): tf.compat.v1, gRPC",
            overlap=f"{ahead} steps of a worker at a time" if ahead > 1 else "none",
        )

    def _place(self, tables):
        """Rows of tables on each server; the other tensors, the largest first, on that which has fewest values of
        them."""
        servers, self._shards = range(len(self._ranks.servers)), {}
        self._counts = [Counts(server, self._job) for server in servers]
        values = [0] * len(servers)
        for one in sorted(self._trained, key=lambda one: -one.size):
            if one.name in tables:
                self._shards[one.name] = [self._shard(one, server, len(servers)) for server in servers]
            else:
                server = values.index(min(values))
                values[server] += one.size
                self._shards[one.name] = [self._shard(one, server)]
        with _on(0):
            self._ready, self._met = _variable("ready", (), tf.int64), _variable("met", (), tf.int64)
        self._dones = [_done(server, self._ranks) for server in servers]
        others = [one for one in base.parameters(self._job) if not one.trained]
        self._statistics = {one.name: self._statistic(one) for one in others}

    def _statistic(self, one):
        first = initial(one, self._job.seed, self._job.weights_dtype)
        return v1.get_variable(
            one.name.replace(".", "_"),
            initializer=first,
            use_resource=True,
            trainable=False,
            collections=[v1.GraphKeys.LOCAL_VARIABLES],
        )

    def _shard(self, one, server, servers=None):
        shape = [one.shape[axis] for axis in _axes(one)]
        if servers:
            shape[0] = len(range(server, shape[0], servers))
        name = f"{one.name}-{server}".replace(".", "_")
        with _on(server):
            tensor, *moments = (
                _variable(f"{name}{moment}", shape, self._job.weights_dtype) for moment in ("", *self._update.moments)
            )
        return Shard(server, tensor, dict(zip(self._update.moments, moments)))

    def _build(self, loss, chosen):
        """chosen: by table, the rows that a step looks up."""
        seen, pulled, rows = [], {}, {}
        for server, counts in enumerate(self._counts):
            with _on(server):
                seen.append(tf.identity(counts.updates))
        for name, shards in self._shards.items():
            if name in chosen:
                pulled[name], rows[name] = self._look_up(shards, chosen[name], seen)
            else:
                pulled[name] = [self._pull(shards[0], seen)]
                rows[name] = pulled[name][0].values
        graph = self._session.graph
        before = len(graph.get_operations())
        value, logits = loss(self._network, self._inputs, {**rows, **self._statistics})
        kept = [one for one in graph.get_operations()[before:] if one.type == "AssignVariableOp"]
        parts = [(name, one) for name, found in pulled.items() for one in found]
        # tensors, in which a row that several examples have looked up has its sum
        gradients = list(map(tf.convert_to_tensor, v1.gradients(value, [one.values for _, one in parts])))
        pushed = [(name, one, gradient) for (name, one), gradient in zip(parts, gradients)]
        with tf.control_dependencies([*kept, *self._push(pushed, seen)]):
            self._train = {"loss": tf.identity(value)}
        if self._job.trace_steps:
            self._train["logits"] = logits
            self._train["gradients"] = self._by_name(pushed)
        self._bytes = tf.add_n([tf.size(one) for one in gradients])

    def _by_name(self, pushed):
        """Gradients as they are handed out: of a table its rows, and the values of these."""
        found, servers = {}, len(self._counts)
        for name, part, gradient in pushed:
            rows = None if part.rows is None else part.rows * servers + part.shard.server
            found.setdefault(name, []).append((rows, gradient))
        return {
            name: tuple(tf.concat(one, 0) for one in zip(*parts)) if parts[0][0] is not None else parts[0][1]
            for name, parts in found.items()
        }

    def _look_up(self, shards, ids, seen):
        """Of each server the rows that it has, each once; and rows as ids have them."""
        servers = len(shards)
        where, places = tf.unique(ids)
        owners = where % servers
        on_servers = tf.dynamic_partition(where // servers, owners, servers)
        at = tf.dynamic_partition(tf.range(tf.size(where)), owners, servers)
        pulled = [self._pull(shard, seen, own) for shard, own in zip(shards, on_servers)]
        found = tf.dynamic_stitch(at, [one.values for one in pulled])
        return pulled, tf.ensure_shape(tf.gather(found, places), (ids.shape[0], found.shape[1]))

    def _pull(self, shard, seen, rows=None):
        """What a server has, after it has said how many updates it has applied: `seen`, of each server."""
        with _on(shard.server), tf.control_dependencies([seen[shard.server]]):
            values = shard.tensor.read_value() if rows is None else tf.gather(shard.tensor, rows)
        return Pulled(shard, rows, values)

    def _push(self, pushed, seen):
        """Operations after which all servers have applied their part and counted it. pushed: name, Pulled, gradient.

        A server applies one push after the other: side by side, two that change a row could lose what one of them did,
        and Adam's moments would be of neither.
        """
        applied = []
        for server, counts in enumerate(self._counts):
            own = [(name, part, gradient) for name, part, gradient in pushed if part.shard.server == server]
            with _on(server):
                come = [tf.identity(gradient) for _, _, gradient in own]
                with tf.control_dependencies(come):  # nobody waits for what is under way
                    lock = tf.raw_ops.MutexLock(mutex=tf.raw_ops.MutexV2(shared_name=f"push{server}"))
                with tf.control_dependencies([lock]):
                    updates = tf.identity(counts.updates.assign_add(1))
                    step, operations = tf.cast(updates, tf.float64), []
                    for (name, part, _), gradient in zip(own, come):
                        _, tensor, moments = part.shard
                        operations += self._update(name, tensor, moments, part.rows, gradient, step)
                    behind = tf.minimum(updates - 1 - seen[server], MOST_STALE)
                    stale, one = counts.stale.handle, tf.ones((), tf.int64)
                    operations.append(tf.raw_ops.ResourceScatterAdd(resource=stale, indices=behind, updates=one))
                with tf.control_dependencies(operations):
                    applied.append(tf.raw_ops.ConsumeMutexLock(mutex_lock=lock))
        return applied

    def _reach(self, seconds):
        """Return when each server reaches this worker. One that tried before there was something to reach waits before
        it tries again, and what is asked of it until then fails."""
        sent, answers = v1.placeholder(tf.int32, ()), []
        for server in range(len(self._counts)):
            with _on(server):
                answers.append(sent + 1)
        deadline = time.monotonic() + seconds
        while True:
            try:
                return self._session.run(answers, {sent: 0})
            except tf.errors.UnavailableError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _start(self):
        """Worker 0 gives the servers the initial values; the others wait."""
        run = self._session.run
        run(v1.local_variables_initializer())
        if self._ranks.rank:
            while not run(v1.is_variable_initialized(self._ready)) or not run(self._ready):
                time.sleep(0.05)
            return
        run(v1.global_variables_initializer())
        for one in self._trained:
            shards = self._shards[one.name]
            for shard in shards if one.init != "zeros" else ():
                rows = slice(shard.server if len(shards) > 1 else 0, None, len(shards))
                first = initial(one, self._job.seed, self._job.weights_dtype, rows)
                self._fill(shard.tensor, first.transpose(_axes(one)))
        run(self._ready.assign(1))

    def _fill(self, tensor, values):
        """A server's tensor with these, some rows at a time: a message has a limit."""
        at, part = v1.placeholder(tf.int32, [None]), v1.placeholder(values.dtype, [None, *values.shape[1:]])
        put = tf.raw_ops.ResourceScatterUpdate(resource=tensor.handle, indices=at, updates=part)
        rows = _rows(values.shape)
        for start in range(0, len(values), rows):
            some = values[start : start + rows]
            self._session.run(put, {at: numpy.arange(start, start + len(some)), part: some})

    def _step(self, batch):
        while len(self._under_way) >= self._ahead:
            self._under_way.pop(0).result()
        inputs = {self._inputs[name]: array for name, array in batch.items()}
        self.pushes += len(self._counts)
        started = self._pool.submit(self._session.run, self._train, inputs)
        self._under_way.append(started)
        return started

    def _observe(self, batch):
        self.shapes = self._network.shapes
        self.effective["compute_dtype"] = self._network.compute_dtype.name
        inputs = {self._inputs[name]: array for name, array in batch.items()}
        self.gradient_bytes = int(self._session.run(self._bytes, inputs)) * self._network.compute_dtype.size

    def wait(self):
        for one in self._under_way:
            one.result()
        self._under_way = []

    def read(self, loss):
        found = loss.result()
        self._logits, self._gradients = found.get("logits"), found.get("gradients", {})
        return float(found["loss"])

    def all_reduce(self, count):
        workers, run = len(self._ranks.workers), self._session.run
        with self._session.graph.as_default():
            come = self._met.assign_add(1, use_locking=True)

        def meet():
            self.wait()
            self._meetings += 1
            run(come)
            while run(self._met) < self._meetings * workers:
                time.sleep(0.001)
            return float(workers)

        return meet

    def parameters(self):
        for one in base.parameters(self._job):
            if one.trained:
                yield one.name, self._whole(one, lambda shard: shard.tensor)
            else:
                yield one.name, self._session.run(self._statistics[one.name])

    def moments(self):
        return {moment: self._of(moment) for moment in self._update.moments}

    def _of(self, moment):
        return ((one.name, self._whole(one, lambda shard: shard.moments[moment])) for one in self._trained)

    def _whole(self, one, of):
        """A tensor from its shards, in the canonical layout. of: Shard -> variable."""
        shards = self._shards[one.name]
        if len(shards) == 1:
            return _canonical(one, self._session.run(of(shards[0])))
        whole = numpy.empty(one.shape, self._job.weights_dtype)
        for shard in shards:
            own = whole[shard.server :: len(shards)]
            rows = _rows(own.shape)
            for start in range(0, len(own), rows):
                own[start : start + rows] = self._some(of(shard), start, rows)
        return whole

    def _some(self, tensor, start, count):
        """Rows of a server's tensor from one on: what is read whole is there twice, and more often on its way."""
        if tensor.name not in self._read:
            with self._session.graph.as_default(), tf.device(tensor.device):
                at = v1.placeholder(tf.int32, ())
                rows = tf.range(at, tf.minimum(at + count, tensor.shape[0]))
                self._read[tensor.name] = at, tf.gather(tensor, rows)
        at, rows = self._read[tensor.name]
        return self._session.run(rows, {at: start})

    def logits(self):
        return zip(base.logits(self._job), self._logits)

    def gradients(self):
        """A worker's own: of several, nobody has the mean but the servers."""
        if self._ranks.world_size > 1:
            return
        for one in self._trained:
            found = self._gradients[one.name]
            yield one.name, base.summed(*found) if isinstance(found, tuple) else _canonical(one, found)

    def peak_memory(self):
        return None

    def close(self):
        self.wait()
        with self._session.graph.as_default():
            for done in self._dones:
                self._session.run(done.enqueue(1))
        self._session.close()


class Feed(base.Feed):
    """Batches as NumPy has them, which each step is fed."""

    def __init__(self, job, ranks):
        self._dtype = job.weights_dtype
        super().__init__(job, ranks)

    def _tensor(self, array):
        if array.ndim == 4:
            array = array.transpose(0, 2, 3, 1)
        return array.astype(self._dtype, order="C") if array.dtype.kind == "f" else array
