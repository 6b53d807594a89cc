"""How ranks average their gradients in TensorFlow: MultiWorkerMirroredStrategy, or Horovod."""

import os
import signal

import tensorflow as tf
from tensorflow.python.eager import context

from dlperf.adapters import compression, horovod
from dlperf.adapters.api import Unsupported
from dlperf.adapters.ranks import interface

#: Gradients are added up in packs of at least this size, so that the first are under way during the backward pass. Over
#: gRPC a step of bert_base took 2.6 s of CPU time with packs of 4 MiB, 2.7 s with 32 and 3.2 s with 128.
PACK_BYTES = {"cpu": 2**22, "cuda": 2**25}
#: A rank whose process ended is missed at once, one whose host is gone after this. TensorFlow's 10 s were not enough
#: for bert_base on a busy machine.
SILENCE_SECONDS = 60


def join(job, ranks):
    """Make the group of all ranks, before the first tensor. Returns what averages their gradients."""
    compression.check(job)
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

    def gather(self, values):
        """In `run`: the values of all ranks, one after the other. values: a vector, of one length on all ranks."""
        return tf.distribute.get_replica_context().all_gather(values, axis=0)

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


def all_reduce(strategy, count):
    """See dlperf.adapters.api.Trainer.all_reduce."""
    ones = tf.ones(count)
    total = tf.function(lambda: strategy.run(strategy.add_up, [ones])[0][0])
    return lambda: float(total())
