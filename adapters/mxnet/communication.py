"""How ranks add up their gradients in MXNet: a KVStore (parameter servers, over ps-lite and ZeroMQ), or Horovod."""

import contextlib
import os
import subprocess
import sys
import threading

import mxnet as mx
from mxnet import nd
from mxnet.kvstore.kvstore_server import KVStoreServer

from dlperf.adapters import compression, horovod
from dlperf.adapters.ranks import await_port

# Importing mxnet in a process with such a role runs it, until all workers have left
HELPER = "from dlperf.adapters import spawn; spawn.die_with_parent(); import mxnet"
SECONDS_TO_LEAVE = 2
#: a value of 2 bits than one of 32: times
SMALLER = 16
#: ps-lite itself waits forever; of 150 starts on a very busy machine 3 hung, which we could not explain
SECONDS_TO_MEET = 120


def between(job, ranks, trained, recipe):
    """What adds up the gradients of these ranks, in place. trained, recipe: see compression.Deep."""
    if ranks.world_size == 1:
        return OneRank()
    deep = compression.asked(job) == "dgc"
    compression.check(job, by_horovod=deep)
    if deep:  # a KVStore gathers nothing
        from dlperf.adapters.mxnet.compression import Deep

        return Deep(job, ranks, trained, recipe)
    kind = Horovod if job.options["communication"] == "horovod" else KVStore
    return kind(job, ranks, [gradient for _, gradient, _ in trained])


class OneRank:
    """Nothing to add up."""

    description = None

    def sent_bytes(self, gradients):
        """Of a step, those that a rank hands over. gradients: the bytes of all gradients."""
        return gradients

    def add_gradients(self):
        pass

    def close(self):
        pass


class KVStore(OneRank):
    """The engine sends each array as soon as it is computed.

    Beside the workers a KVStore needs a scheduler, where all meet, and servers, each of which adds up a part of the
    gradients. MXNet's launcher starts them all; ours start ranks alone. So they are children of ranks: rank 0 has the
    scheduler, and each rank a server, which makes as many servers as MXNet's launcher has unless told.
    """

    def __init__(self, job, ranks, gradients):
        self._gradients, self._leaving = gradients, False
        self._coarse = compression.asked(job) == "2bit"
        self._ranks, self._exact = ranks, job.precision == "fp64" and not self._coarse
        self._threshold = compression.threshold(job) if self._coarse else 1.0
        self._helpers = start(ranks, "zmq" if self._coarse else "p3")
        for role, helper in self._helpers:
            threading.Thread(target=self._watch, args=(role, helper), daemon=True).start()
        os.environ["DMLC_ROLE"] = "worker"
        self._store = create("dist_device_sync" if job.device == "cuda" else "dist_sync", job)
        if self._coarse:
            self._store.set_gradient_compression({"type": "2bit", "threshold": self._threshold})
        self._keys = list(range(len(gradients)))
        for key, gradient in zip(self._keys, gradients):
            parts = (
                nd.zeros((ranks.world_size, 2, gradient.size))
                if self._exact
                else gradient.astype("float32", copy=False)
            )
            self._store.init(key, parts)

    @property
    def description(self):
        van, servers = os.environ["DMLC_PS_VAN_TYPE"], os.environ["DMLC_NUM_SERVER"]
        how = "; float64 as two float32, gathered, and added up by each rank" if self._exact else ""
        if self._coarse:
            how = f"; pushes of 2 bits, threshold {self._threshold:g}"
        return f"KVStore {self._store.type} (ps-lite's {van} over ZeroMQ, {servers} servers{how})"

    def sent_bytes(self, gradients):
        return gradients // SMALLER if self._coarse else gradients

    def add_gradients(self):
        for key in reversed(range(len(self._gradients))):  # as the backward pass computes them
            if self._coarse:
                self._add_coarsely(key, self._gradients[key])
            elif self._exact:
                self._add_exactly(key, self._gradients[key])
            else:
                # priority: as gluon.Trainer has it, so that the first layers' weights are the first to be there
                self._exchange(key, self._gradients[key], priority=-key)

    def _exchange(self, key, values, **how):
        if self._coarse:  # which pushpull() is not
            self._store.push(key, values, **how)
            self._store.pull(key, values, **how)
        else:
            self._store.pushpull(key, values, **how)

    def _add_coarsely(self, key, gradient):
        """What the KVStore keeps for later is float32 whatever gradients are."""
        narrow = gradient.astype("float32", copy=False)
        self._exchange(key, narrow, priority=-key)
        if narrow is not gradient:
            gradient[:] = narrow.astype(gradient.dtype)

    def _add_exactly(self, key, gradient):
        """For float64: a server of MXNet 1.9.1 may add it up in float32, as KVStoreDistServer::multi_precision_ says,
        which is not initialised. So each rank sends its own in two parts, which hold 48 bits, beside the others' zeros,
        and adds all up by itself."""
        mine, own = gradient.reshape(-1), self._ranks.rank
        parts = nd.zeros((self._ranks.world_size, 2, gradient.size))
        parts[own, 0] = high = mine.astype("float32")
        parts[own, 1] = (mine - high.astype("float64")).astype("float32")
        self._store.pushpull(key, parts)
        gradient[:] = parts.astype("float64").sum(axis=(0, 1)).reshape(gradient.shape)
        gradient.wait_to_read()  # one array after the other, or the parts of all would be there at once

    def all_reduce(self, count):
        """See dlperf.adapters.api.Trainer.all_reduce."""
        key = len(self._keys)
        values = nd.zeros(count * SMALLER if self._coarse else count, ctx=self._gradients[0].context)
        self._keys.append(key)
        self._store.init(key, values)

        def add_up():
            values[:] = self._threshold  # with 2 bits nothing else goes through whole
            self._exchange(key, values)
            total = values[:1].asscalar().item()
            return round(total / self._threshold, 3) if self._coarse else total  # a threshold is no power of 2

        return add_up

    def close(self):
        """Leave together with the other ranks, and end the helpers, which do so by themselves when all have left.

        ps-lite drops what it has not sent yet when it closes its sockets, so a rank may wait for the last word in
        vain: it does not wait for long.
        """
        self._store._barrier()
        self._leaving = True
        left = leave(self._free)
        for _, helper in self._helpers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                helper.wait(SECONDS_TO_LEAVE if left else 0)
            helper.kill()

    def _free(self):
        self._store = None

    def _watch(self, role, helper):
        """Workers would wait forever for a scheduler or server that is gone, for lack of memory perhaps."""
        code = helper.wait()
        if not self._leaving:
            print(f"the {role} of MXNet's KVStore ended with exit code {code}", file=sys.stderr, flush=True)
            os._exit(1)


def leave(free):
    """Call what frees a KVStore. Returns whether it came back in time."""
    leaving = threading.Thread(target=free, daemon=True)
    leaving.start()
    leaving.join(SECONDS_TO_LEAVE)
    return not leaving.is_alive()


def start(ranks, van):
    """Tell this process where its KVStore is, and start its helpers. van: how ps-lite sends; with "p3" it compresses
    nothing. Returns pairs of role and process."""
    os.environ.update(
        DMLC_PS_ROOT_URI=ranks.addresses[0],
        DMLC_PS_ROOT_PORT=str(ranks.ports[0]),
        DMLC_NODE_HOST=ranks.addresses[ranks.rank],
        DMLC_NUM_WORKER=str(ranks.world_size),
        DMLC_NUM_SERVER=str(ranks.world_size),
    )
    # ps-lite's "p3" cuts arrays into slices, dealt out to the servers in turn, and sends first what has the highest
    # priority. Without slices a server waits for all of BERT's word embedding (94 MB) before it begins to add up: 850
    # ms in place of 240, with two ranks on two cores. Slices of 1 MB took less time than 4 MB or the usual 160 kB
    os.environ.setdefault("DMLC_PS_VAN_TYPE", van)
    os.environ.setdefault("MXNET_KVSTORE_SLICE_THRESHOLD", "250000")
    # A server waits for each of its operations anyway: without MXNet's threaded engine it takes half the CPU
    environment = dict(os.environ, MXNET_ENGINE_TYPE="NaiveEngine")
    command = [sys.executable, "-c", HELPER]
    helpers = []
    if ranks.rank == 0:
        helpers.append(("scheduler", subprocess.Popen(command, env=dict(environment, DMLC_ROLE="scheduler"))))
    await_port(ranks.addresses[0], ranks.ports[0], SECONDS_TO_MEET)  # nobody asks for the scheduler before it listens
    helpers.append(("server", subprocess.Popen(command, env=dict(environment, DMLC_ROLE="server"))))
    return helpers


def give_up():
    print("MXNet's KVStore did not come together in time", file=sys.stderr, flush=True)
    os._exit(1)


def store(job, ranks):
    """The KVStore of a row: of this process, or of its parameter servers."""
    if not job.servers:
        return mx.kv.create("local")
    _place(ranks, "worker")
    return create(f"dist_{job.ps_mode}", job)


def create(kind, job):
    """A KVStore of several processes, or the end of this one if they do not come together in time."""
    late = threading.Timer(min(job.meeting_seconds, SECONDS_TO_MEET), give_up)
    late.daemon = True
    late.start()
    made = mx.kv.create(kind)
    late.cancel()
    return made


def serve(job, ranks):
    """A parameter server until the workers have left. The first one has the scheduler, where all meet, as its child."""
    _place(ranks, "server")
    scheduler = None
    if ranks.rank == 0:
        environment = dict(os.environ, DMLC_ROLE="scheduler")
        scheduler = subprocess.Popen([sys.executable, "-c", HELPER], env=environment)
    await_port(*_scheduler(ranks), SECONDS_TO_MEET)
    sys.unraisablehook = _end  # of an optimizer's error ctypes only prints what it says, and the server would go on
    KVStoreServer(mx.kv.create("dist")).run()
    sys.unraisablehook = sys.__unraisablehook__
    if scheduler:
        with contextlib.suppress(subprocess.TimeoutExpired):
            scheduler.wait(SECONDS_TO_LEAVE)
        scheduler.kill()


def _end(error):
    sys.__unraisablehook__(error)
    os._exit(1)


def _scheduler(ranks):
    address, _, port = ranks.servers[0].rpartition(":")
    return address, int(port)


def _place(ranks, role):
    """What ps-lite reads."""
    address, port = _scheduler(ranks)
    own = (ranks.servers if role == "server" else ranks.workers)[ranks.rank]
    os.environ.update(
        DMLC_ROLE=role,
        DMLC_PS_ROOT_URI=address,
        DMLC_PS_ROOT_PORT=str(port),
        DMLC_NODE_HOST=own.rpartition(":")[0],
        DMLC_NUM_WORKER=str(len(ranks.workers)),
        DMLC_NUM_SERVER=str(len(ranks.servers)),
        # tensors of fewer values go to one server whole. Of a table the others would die of having none of its rows; of
        # biases with fewer values than there are servers some would be given none
        MXNET_KVSTORE_BIGARRAY_BOUND=str(len(ranks.servers)),
    )


class Horovod(OneRank):
    """Its sums are operations of the engine, too."""

    def __init__(self, job, ranks, gradients):
        import horovod.mxnet as hvd

        horovod.prepare(ranks, job.meeting_seconds)
        hvd.init()
        self._hvd, self._gradients = hvd, gradients
        self.description = f"horovod.mxnet.allreduce_ ({'nccl' if hvd.nccl_built() else 'gloo'})"

    def add_gradients(self):
        for key in reversed(range(len(self._gradients))):  # as the backward pass computes them
            self._add_up(self._gradients[key], name=f"gradient {key}", priority=-key)

    def all_reduce(self, count):
        """See dlperf.adapters.api.Trainer.all_reduce."""
        values = nd.zeros(count, ctx=self._gradients[0].context)

        def add_up():
            values[:] = 1
            self._add_up(values, name=f"ones {count}")
            return values[:1].asscalar().item()

        return add_up

    def _add_up(self, values, **how):
        self._hvd.allreduce_(values, op=self._hvd.Sum, **how)

    def close(self):
        self._hvd.shutdown()
