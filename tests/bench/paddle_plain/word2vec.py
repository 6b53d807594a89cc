"""Word2Vec on PaddlePaddle's parameter servers, as its guide of them has it: a static graph with sparse_embedding, and
fleet with a_sync."""

import os

import numpy
import paddle
import paddle.nn.functional as F
from paddle import static
from paddle.distributed import fleet

from dlperf import models
from dlperf.adapters.ranks import await_port
from dlperf.models import word2vec
from dlperf.models.batches import Batches
from dlperf.models.parameters import count

__all__ = ["build", "serve", "versions"]


def versions():
    return {"paddlepaddle": paddle.__version__}


def build(job, ranks):
    return Trainer(job, ranks)


def serve(job, ranks):
    _join(job, ranks)
    _network(job, ranks)
    fleet.init_server()
    fleet.run_server()


def _join(job, ranks):
    """What fleet's launcher tells a process."""
    own = ranks.endpoints[ranks.rank]
    os.environ.update(
        TRAINING_ROLE="PSERVER" if ranks.role == "server" else "TRAINER",
        PADDLE_TRAINER_ID=str(ranks.rank),
        PADDLE_TRAINERS_NUM=str(len(ranks.workers)),
        PADDLE_PSERVERS_IP_PORT_LIST=",".join(ranks.servers),
        PADDLE_TRAINER_ENDPOINTS=",".join(ranks.workers),
        POD_IP=own.rpartition(":")[0],
        PADDLE_PORT=own.rpartition(":")[2],
        PADDLE_WITH_GLOO="0",
    )
    paddle.enable_static()
    paddle.base.core.set_num_threads(job.threads)
    fleet.init(fleet.PaddleCloudRoleMaker(is_collective=False))


def _network(job, ranks):
    """The loss."""
    config, recipe = models.config(job.model), word2vec.optimizer(job.batch_size * ranks.world_size)
    words, contexts = static.data("words", [-1, 1], "int64"), static.data("contexts", [-1, 1], "int64")
    h, w, b = (
        static.nn.sparse_embedding(chosen, [config.vocabulary, width], param_attr=paddle.ParamAttr(name=name))
        for name, width, chosen in (
            ("emb", config.width, words),
            ("emb_w", config.width, contexts),
            ("emb_b", 1, contexts),
        )
    )
    if config.shared:
        sizes = [-1, config.negatives]
        (w, others), (b, biases) = paddle.split(w, sizes), paddle.split(b, sizes)
        own = (h * w).sum(1, keepdim=True) + b
        logits = paddle.concat([own, paddle.matmul(h, others, transpose_y=True) + biases.t()], 1)
    else:
        w, b = (one.reshape([-1, 1 + config.negatives, one.shape[-1]]) for one in (w, b))
        logits = (paddle.matmul(w, h.unsqueeze(2)) + b).squeeze(2)
    signs = paddle.assign(numpy.array([[-1.0] + [1.0] * config.negatives], "float32"))
    loss = F.softplus(logits * signs).sum(1).mean()
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = True
    fleet.distributed_optimizer(paddle.optimizer.SGD(recipe.learning_rate), strategy).minimize(loss)
    return loss


class Trainer:
    """A worker."""

    input_seconds = None

    def __init__(self, job, ranks):
        self._batches = [rows(job, batch) for batch in Batches(job, ranks).pool()]
        self._workers, self._steps, self._meetings, self._first = ranks.world_size, 0, 0, ranks.rank == 0
        host, _, port = ranks.workers[0].rpartition(":")
        everyone = len(ranks.workers)
        self._store = paddle.base.core.TCPStore(host, int(port), self._first, everyone, int(job.meeting_seconds))
        _join(job, ranks)
        self._loss = _network(job, ranks)
        self._executor = static.Executor(paddle.CPUPlace())
        self._executor.run(static.default_startup_program())
        for server, endpoint in enumerate(ranks.servers):  # fleet asks once
            address, port = endpoint.rsplit(":", 1)
            await_port(address, int(port), job.meeting_seconds, f"server {server}")
        fleet.init_worker()
        config = models.config(job.model)
        self.shapes, self.gradient_bytes = {}, 0
        self.parameter_count = count(word2vec.parameters(config))
        self.effective = {
            "precision": job.precision,
            "compute_dtype": "float32",
            "threads": job.threads,
            "data": "synthetic",
            "note": "plain's tables start from zeros, and train with Adam, whatever the optimizer",
        }

    def step(self):
        fed = self._batches[self._steps % len(self._batches)]
        self._steps += 1
        (loss,) = self._executor.run(static.default_main_program(), fed, [self._loss])
        return loss

    def wait(self):
        pass

    def read(self, loss):
        return float(loss)

    def _meet(self):
        self._meetings += 1
        come, open_ = f"come{self._meetings}", f"open{self._meetings}"
        if self._store.add(come, 1) == self._workers:
            self._store.set(open_, "1")
        self._store.get(open_)

    def all_reduce(self, count):
        def meet():
            fleet.fleet._runtime_handle._worker.client_flush()
            self._meet()
            return float(self._workers)

        return meet

    def parameters(self):
        raise NotImplementedError

    def peak_memory(self):
        return None

    def close(self):
        self._meet()
        if self._first:
            fleet.fleet._runtime_handle._worker.stop_server()
        self._meet()
        fleet.stop_worker()


def rows(job, batch):
    """What a step is fed: of contexts first the true ones, then the negatives; or each with its own."""
    words, contexts, negatives = batch["words"], batch["contexts"], batch["negatives"]
    if models.config(job.model).shared:
        contexts = numpy.concatenate([contexts, negatives[0]])
    else:
        contexts = numpy.concatenate([contexts[:, None], negatives], 1)
    return {"words": words.reshape(-1, 1).astype("int64"), "contexts": contexts.reshape(-1, 1).astype("int64")}
