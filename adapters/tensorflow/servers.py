"""Parameter servers in TensorFlow: between-graph replication. Each worker has a graph of its own, whose tables are on
the servers, row r on server r % servers, and applies its gradients there when it has them.

It is what TensorFlow's scripts of 2019 did, on tf.compat.v1. tf.distribute.ParameterServerStrategy, its successor, has
the same servers and no worker of its own: one coordinator hands out the steps of all.
"""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy
import tensorflow as tf

from dlperf.adapters import base
from dlperf.models.parameters import count, initial

v1 = tf.compat.v1
#: steps of a worker that are under way at a time
AHEAD = 2
#: how stale pushes are counted to be, one by one; the last one stands for more
MOST_STALE = 1000
#: rows that are handed to a server at a time
ROWS = 16384


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
    return v1.get_variable(name, shape, dtype, v1.zeros_initializer(), use_resource=True, trainable=False)


class Counts:
    """What a server knows of its updates: how many, and of how many it was behind, how often."""

    def __init__(self, server, job):
        with _on(server):
            self.updates = _variable(f"updates{server}", (), tf.int64)
            self.stale = _variable(f"stale{server}", (MOST_STALE + 1,), tf.int64)


class Trainer(base.Trainer):
    """A worker. network, loss, looked_up: as in dlperf.adapters.tensorflow.word2vec. In trace_steps one step is under
    way at a time."""

    def __init__(self, job, ranks, network, loss, looked_up, rate, effective):
        super().__init__(job, Feed(job, ranks), effective)
        self._network, self._ranks, self._rate = network, ranks, rate
        self.parameter_count = count(base.parameters(job))
        self.gradient_bytes, self.pushes, self._meetings = 0, 0, 0
        self._logits, self._gradients, self._under_way = None, {}, []
        ahead = 1 if job.trace_steps else AHEAD
        self._pool, self._ahead = ThreadPoolExecutor(ahead), ahead
        self._server = _server(job, ranks)  # kept, or it stops
        # else a worker's session is over when another worker is
        own = v1.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{ranks.rank}"])
        self._session = v1.Session(self._server.target, graph=tf.Graph(), config=own)
        # else what has no device is worker 0's
        with self._session.graph.as_default(), tf.device(f"/job:worker/task:{ranks.rank}/cpu:0"):
            self._tables()
            self._build(loss, looked_up)
            self._reach(job.meeting_seconds)
            self._start()
        self.effective.update(
            compile="graph (grappler)",
            threads=str(job.threads),
            optimizer="SGD on the servers, by scatter_sub",
            communication="parameter servers (async): tf.compat.v1, gRPC",
            overlap=f"{ahead} steps of a worker at a time" if ahead > 1 else "none",
        )

    def _tables(self):
        servers = len(self._ranks.servers)
        self._counts = [Counts(server, self._job) for server in range(servers)]
        self._shards = {one.name: [] for one in base.parameters(self._job)}
        for one in base.parameters(self._job):
            for server in range(servers):
                rows = len(range(server, one.shape[0], servers))
                with _on(server):
                    name, shape = f"{one.name}-{server}".replace(".", "_"), (rows, *one.shape[1:])
                    self._shards[one.name].append(_variable(name, shape, self._job.weights_dtype))
        with _on(0):
            self._ready, self._met = _variable("ready", (), tf.int64), _variable("met", (), tf.int64)
        self._dones = [_done(server, self._ranks) for server in range(servers)]

    def _build(self, loss, looked_up):
        batch = self._feed[0]
        self._inputs = {name: v1.placeholder(tf.int32, array.shape) for name, array in batch.items()}
        seen = [tf.identity(one.updates) for one in self._counts]
        chosen, rows, where = looked_up(self._network.config, self._inputs), {}, {}
        with tf.control_dependencies(seen):
            for name, ids in chosen.items():
                where[name], places = tf.unique(ids)
                found = v1.nn.embedding_lookup(self._shards[name], where[name], partition_strategy="mod")
                rows[name] = found, places
        value, logits = loss(
            self._network,
            {
                name: tf.ensure_shape(tf.gather(found, places), (chosen[name].shape[0], found.shape[1]))
                for name, (found, places) in rows.items()
            },
        )
        tables = [found for found, _ in rows.values()]
        # tensors, in which a row that several examples have looked up has its sum
        gradients = dict(zip(rows, map(tf.convert_to_tensor, v1.gradients(value, tables))))
        pushed = self._push(where, gradients, seen)
        with tf.control_dependencies(pushed):
            self._train = {"loss": tf.identity(value)}
        if self._job.trace_steps:
            self._train["logits"] = logits
            self._train["gradients"] = {name: (where[name], gradients[name]) for name in gradients}
        self._bytes = tf.add_n([tf.size(one) for one in gradients.values()])

    def _push(self, where, gradients, seen):
        """Of each server, its part of the gradients; and what it counts."""
        servers, pushed = len(self._ranks.servers), []
        parts = {
            name: [tf.dynamic_partition(one, where[name] % servers, servers) for one in (where[name], gradients[name])]
            for name in gradients
        }
        for server, counts in enumerate(self._counts):
            own = []
            for name, (ids, values) in parts.items():
                shard = self._shards[name][server]
                own.append(v1.scatter_sub(shard, ids[server] // servers, self._rate * values[server]))
            with _on(server), tf.control_dependencies(own):
                updates = counts.updates.assign_add(1, use_locking=True, read_value=True)
                behind = tf.minimum(updates - 1 - seen[server], MOST_STALE)
                pushed.append(v1.scatter_add(counts.stale, behind, tf.ones((), tf.int64)))
        return pushed

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
        if self._ranks.rank:
            while not run(v1.is_variable_initialized(self._ready)) or not run(self._ready):
                time.sleep(0.05)
            return
        run(v1.global_variables_initializer())
        servers = len(self._ranks.servers)
        for one in base.parameters(self._job):
            if one.init == "zeros":
                continue
            at, values = (
                v1.placeholder(tf.int32, [None]),
                v1.placeholder(self._job.weights_dtype, [None, *one.shape[1:]]),
            )
            for server, shard in enumerate(self._shards[one.name]):
                put = v1.scatter_update(shard, at, values)
                first = initial(one, self._job.seed, self._job.weights_dtype, slice(server, None, servers))
                for start in range(0, len(first), ROWS):
                    part = first[start : start + ROWS]
                    run(put, {at: numpy.arange(start, start + len(part)), values: part})
        run(self._ready.assign(1))

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
            whole = numpy.empty(one.shape, self._job.weights_dtype)
            for server, shard in enumerate(self._shards[one.name]):
                whole[server :: len(self._counts)] = self._session.run(shard)
            yield one.name, whole

    def logits(self):
        return zip(base.logits(self._job), self._logits)

    def gradients(self):
        """A worker's own: of several, nobody has the mean but the servers."""
        if self._ranks.world_size > 1:
            return iter(())
        return ((name, base.summed(rows, values)) for name, (rows, values) in self._gradients.items())

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

    def _tensor(self, array):
        return array
