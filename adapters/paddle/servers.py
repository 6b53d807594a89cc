"""Parameter servers in PaddlePaddle 2.6.2, the last whose servers train: each worker has a static graph, of which fleet
keeps the tables on the servers. Of a table a step pulls the rows that it looks up and pushes their gradients; all other
tensors it pulls and pushes whole.

Four things are not as its documentation has them (seen by what they do, and in its the_one_ps.py):

- A table trains with Adam unless its settings name the rule, whatever the optimizer is. Here they name it.
- The gradient of a row is multiplied by the number of rows that its push has. Here it is divided by that before.
- Tables start from zeros whatever their initializer, and of the first push of a row servers take one value alone. Here
  the first is of zeros, and the second makes the initial values of them.
- Nothing pulls tensors that are not tables, unless the data come from its own readers. Here each step does.

Servers keep float32. Of a worker they get up to 12 pushes of a tensor as one, which is their sum.
"""

import json
import os
from collections import Counter, deque

import numpy
import paddle
from paddle.distributed import fleet
from paddle.distributed.ps.utils.public import get_the_one_recv_context

from dlperf.adapters import base
from dlperf.adapters.api import Sparse
from dlperf.adapters.ranks import await_port
from dlperf.models.parameters import count, initial

core, static = paddle.base.core, paddle.static
#: of a table on each server
SHARDS = 16
#: that are handed over at a time: brpc drops messages of more than 64 MB
VALUES = 2**22
#: a table that has how many pushes of each worker each server has applied
COUNTER = "pushes"
#: of the operators that pull rows and push their gradients
PULL = {"is_distributed": True, "padding_idx": -1, "lookup_table_version": "lookup_table", "is_test": True}
PUSH = {"is_distributed": True, "padding_idx": -1, "use_cvm_op": False, "slots": [0]}


def serve(job, ranks, *network):
    """See dlperf.adapters.api.ModelModule. network: what Program has after batch. Until worker 0 stops the servers."""
    store = _join(job, ranks)
    Program(job, ranks, Feed(job, ranks)[0], *network)
    fleet.init_server()
    fleet.run_server()
    told = json.loads(store.get(f"applied{ranks.rank}"))
    store.set(f"left{ranks.rank}", "1")
    return told


def _join(job, ranks):
    """Tell fleet where all are, and return the store of worker 0, in which processes leave each other word."""
    address, port = ranks.endpoints[ranks.rank].rsplit(":", 1)
    os.environ.update(
        TRAINING_ROLE="PSERVER" if ranks.role == "server" else "TRAINER",
        PADDLE_TRAINER_ID=str(ranks.rank),
        PADDLE_TRAINERS_NUM=str(len(ranks.workers)),
        PADDLE_PSERVERS_IP_PORT_LIST=",".join(ranks.servers),
        PADDLE_TRAINER_ENDPOINTS=",".join(ranks.workers),
        POD_IP=address,
        PADDLE_PORT=port,
        PADDLE_WITH_GLOO="0",
    )
    paddle.enable_static()
    core.set_num_threads(job.threads)
    paddle.seed(job.dropout_seed + ranks.rank)
    fleet.init(fleet.PaddleCloudRoleMaker(is_collective=False))
    host, port = ranks.workers[0].rsplit(":", 1)
    first = ranks.role == "worker" and ranks.rank == 0
    return core.TCPStore(host, int(port), first, len(ranks.workers) + len(ranks.servers), int(job.meeting_seconds))


class Feed(base.Feed):
    """Batches as NumPy has them."""

    def _tensor(self, array):
        return array.astype("int64")


class Program:
    """The graph of a step, the same on all workers and servers.

    batch: one of those to come. loss: network, what a step is fed, tensors by name -> scalar, logits. looked_up: a
    batch as NumPy has it -> rows by table, in any order, and arrays, by name, that the network is fed. rates: the
    learning rate of each tensor.

    tables: names of those of which a batch looks rows up. used: by tensor, what the network has of it: of a table the
    rows of a batch, each once. counts: see COUNTER.
    """

    def __init__(self, job, ranks, batch, network, loss, looked_up, rates):
        self.tensors = {one.name: one for one in base.parameters(job)}
        self._dtype, self._rates, self._servers, self._settings = job.weights_dtype, rates, len(ranks.servers), {}
        rows, arrays = looked_up(batch)
        self.tables = list(rows)
        fed = {name: static.data(name, [-1, *array.shape[1:]], array.dtype) for name, array in arrays.items()}
        self.used, values = {}, {}
        for name in self.tensors:
            if name in self.tables:
                self.used[name] = self._rows(name)
                values[name] = paddle.gather(self.used[name], static.data(f"{name}.places", [-1], "int64"))
            else:
                self.used[name] = values[name] = self._whole(name)
        self.loss, self.logits = loss(network, fed, values)
        # each worker's push changes its own counts by one, and the loss by nothing
        self.counts = self._table(COUNTER, 1, 1.0)
        counted = (scaled(self.counts, 1 / counters(ranks).size) * static.data("own", [-1, 1], "float32")).sum()
        self._minimize(self.loss - self._typed(counted - constant(counted)))

    def _rows(self, name):
        rows = self._table(name, self.tensors[name].shape[1], self._rates[name])
        return self._typed(scaled(rows, static.data(f"{name}.share", [1], "float32")))

    def _table(self, name, width, rate):
        self._settings[name] = _settings(name, rate, SHARDS * self._servers)
        ids = static.data(f"{name}.ids", [-1, 1], "int64")
        return static.nn.sparse_embedding(ids, [2**31 - 1, width], param_attr=paddle.ParamAttr(name=name))

    def _whole(self, name):
        tensor = static.create_parameter(self.tensors[name].shape, "float32", name)
        return self._typed(scaled(tensor, self._rates[name]))

    def _typed(self, tensor):
        """As the network has it, from the servers' float32."""
        return tensor if self._dtype == "float32" else tensor.astype(self._dtype)

    def _minimize(self, loss):
        strategy = fleet.DistributedStrategy()
        strategy.a_sync = True
        strategy.sparse_table_configs = self._settings
        fleet.distributed_optimizer(paddle.optimizer.SGD(1.0), strategy).minimize(loss)


def constant(tensor):
    found = paddle.assign(tensor)
    found.stop_gradient = True
    return found


def scaled(tensor, factor):
    """The tensor; of its gradient this factor."""
    product = tensor * factor
    return constant(tensor) + (product - constant(product))


def _settings(name, rate, shards):
    """Of a table that SGD trains. A row's first value and the others have a rule each."""
    table = f"table_parameters.{name}."
    found = {
        f"{table}table_class": "MemorySparseTable",
        f"{table}shard_num": shards,
        f"{table}accessor.accessor_class": "SparseAccessor",
    }
    for part in ("embed_sgd_param", "embedx_sgd_param"):
        rule = f"{table}accessor.{part}."
        found[f"{rule}name"] = "SparseNaiveSGDRule"
        found[f"{rule}naive.learning_rate"] = rate
        found[f"{rule}naive.initial_range"] = 0.0
        found[f"{rule}naive.weight_bounds"] = [-3e38, 3e38]
    return found


def counters(ranks):
    """The rows of COUNTER: (workers, servers). Row r of a table is on server r % shards // SHARDS."""
    workers, servers = len(ranks.workers), len(ranks.servers)
    return numpy.arange(workers)[:, None] * SHARDS * servers + numpy.arange(servers) * SHARDS


class Trainer(base.Trainer):
    """A worker. network, loss, looked_up, rates: as Program has them."""

    def __init__(self, job, ranks, network, loss, looked_up, rates, effective):
        super().__init__(job, Feed(job, ranks), effective)
        self._ranks, self._network, self._looked_up = ranks, network, looked_up
        self._store, self._meetings, self._flushed = _join(job, ranks), 0, True
        self._program = Program(job, ranks, self._feed[0], network, loss, looked_up, rates)
        self.parameter_count, self.gradient_bytes = count(base.parameters(job)), 0
        self._counters, self._stale = counters(ranks), Stale(ranks)
        own = (numpy.arange(len(ranks.workers)) == ranks.rank).repeat(len(ranks.servers))
        #: what all steps are fed
        self._fed = {f"{COUNTER}.ids": self._counters.reshape(-1, 1), "own": own.astype("float32")[:, None]}
        self._executor, self._scope = static.Executor(paddle.CPUPlace()), static.global_scope()
        self._executor.run(static.default_startup_program())
        self._start(job, rates)
        self.effective.update(
            compile="static graph",
            threads=str(job.threads),
            optimizer="SGD on the servers, of rows SparseNaiveSGDRule",
            communication="parameter servers (async): fleet, brpc",
            server_dtype="float32",
            overlap="pushes, of a tensor up to 12 as one",
        )

    def _start(self, job, rates):
        """Reach the servers and have the initial values on them, worker 0's."""
        self._whole = [name for name in self._program.tensors if name not in self._program.tables]
        for name in self._whole:
            first = initial(self._program.tensors[name], job.seed, "float32")
            self._scope.find_var(name).get_tensor().set(first, paddle.CPUPlace())
        for server, endpoint in enumerate(self._ranks.servers):  # fleet asks once
            address, port = endpoint.rsplit(":", 1)
            await_port(address, int(port), job.meeting_seconds, f"server {server}")
        fleet.init_worker()
        self._runtime = fleet.fleet._runtime_handle
        sent = self._runtime._send_ctx.values()
        self._ids = {one.origin_varnames()[0][: -len("@GRAD")]: one.table_id() for one in sent if one.is_sparse()}
        self._received = get_the_one_recv_context(self._runtime.context)
        if self._ranks.rank == 0:
            for name in self._program.tables:
                self._fill(name, rates[name])
            self._push(COUNTER, self._counters.reshape(-1), 1)
        self._meet()

    def _fill(self, name, rate):
        parameter = self._program.tensors[name]
        self._push(name, range(parameter.shape[0]), parameter.shape[1])
        if parameter.init != "zeros":
            values = initial(parameter, self._job.seed, "float32")
            self._push(name, range(parameter.shape[0]), parameter.shape[1], values / numpy.float32(-rate))

    def _push(self, name, ids, width, gradients=None):
        """Gradients of rows, zeros if left out, some at a time."""
        program = static.Program()
        with static.program_guard(program, static.Program()):
            fed = static.data("ids", [-1, 1], "int64"), static.data("gradients", [-1, width], "float32")
            shows, clicks = paddle.ones([1], "float32"), paddle.zeros([1], "float32")
            inputs = {"Ids": [fed[0]], "W": _held(program, name), "Outputs": [fed[1]]}
            inputs.update(Shows=shows, Clicks=clicks)
            settings = {**PUSH, "table_id": self._ids[name], "size": width}
            program.global_block().append_op(
                type="distributed_push_sparse", inputs=inputs, outputs={"Outputs": [fed[1]]}, attrs=settings
            )
        start = 0
        while start < len(ids):
            size = power_of_two(min(VALUES // width, len(ids) - start))  # to divide by it is exact
            some = slice(start, start + size)
            values = numpy.zeros((size, width), "float32") if gradients is None else gradients[some] / size
            self._executor.run(program, {"ids": numpy.array(ids[some])[:, None], "gradients": values})
            self._flush()
            start += size

    def _pulled(self, name, ids, width):
        """Rows of a table: (len(ids), width), float32."""
        program = static.Program()
        with static.program_guard(program, static.Program()):
            fed = static.data("ids", [-1, 1], "int64")
            found = program.global_block().create_var(name="found", dtype="float32")
            inputs, settings = {"Ids": [fed], "W": _held(program, name)}, {**PULL, "table_id": self._ids[name]}
            program.global_block().append_op(
                type="distributed_lookup_table", inputs=inputs, outputs={"Outputs": [found]}, attrs=settings
            )
        ids = numpy.asarray(ids).reshape(-1, 1)
        some = VALUES // width
        parts = [ids[start : start + some] for start in range(0, len(ids), some)]
        return numpy.concatenate([self._executor.run(program, {"ids": part}, ["found"])[0] for part in parts])

    def _pull_whole(self):
        if self._whole:
            self._runtime._pull_all_dense([self._scope], self._runtime._send_ctx, self._received)

    def _step(self, batch):
        rows, fed = self._looked_up(batch)
        chosen = {}
        for name, ids in rows.items():
            chosen[name], places = numpy.unique(ids, return_inverse=True)
            fed[f"{name}.ids"], fed[f"{name}.places"] = chosen[name][:, None], places.reshape(-1)
            fed[f"{name}.share"] = numpy.array([1 / len(chosen[name])], "float32")
        fed.update(self._fed)
        self._pull_whole()
        fetched = [self._program.loss, self._program.counts]
        if self._job.trace_steps:
            fetched += [self._program.logits[0], *(f"{one.name}@GRAD" for one in self._program.used.values())]
        loss, counts, *traced = self._executor.run(static.default_main_program(), fed, fetched)
        self._stale.pulled(counts.reshape(self._counters.shape).astype(int), self._steps)
        self._flushed = False
        if traced:
            self._logits, gradients = traced[:1], dict(zip(self._program.used, traced[1:]))
            self._gradients = {
                name: Sparse(chosen[name], one) if name in chosen else one for name, one in gradients.items()
            }
        self.gradient_bytes = 4 * sum(
            len(chosen[name]) * one.shape[1] if name in chosen else one.size
            for name, one in self._program.tensors.items()
        )
        return loss

    def _observe(self, batch):
        self.shapes = self._network.shapes
        self.effective["compute_dtype"] = self._job.weights_dtype

    @property
    def pushes(self):
        return self._steps * len(self._ranks.servers)

    def _flush(self):
        self._runtime._worker.client_flush()

    def wait(self):
        if not self._flushed:
            self._flush()
            self._flushed = True

    def read(self, loss):
        return float(loss)

    def _meet(self):
        """With all workers."""
        self._meetings += 1
        come, open_ = f"come{self._meetings}", f"open{self._meetings}"
        if self._store.add(come, 1) == len(self._ranks.workers):
            self._store.set(open_, "1")
        self._store.get(open_)

    def all_reduce(self, count):
        def meet():
            self.wait()
            self._meet()
            return float(len(self._ranks.workers))

        return meet

    def parameters(self):
        self._pull_whole()
        for name, parameter in self._program.tensors.items():
            if name in self._whole:
                found = numpy.array(self._scope.find_var(name).get_tensor())
            else:
                found = self._pulled(name, range(parameter.shape[0]), parameter.shape[1])
            yield name, found.astype(self._job.weights_dtype)

    def logits(self):
        return zip(base.logits(self._job), self._logits)

    def gradients(self):
        """A worker's own: of several, nobody has the mean but the servers."""
        return iter(self._gradients.items() if self._ranks.world_size == 1 else ())

    def peak_memory(self):
        return None

    def close(self):
        """Tell the servers what each has applied, and stop them when all workers are done."""
        self.wait()
        self._meet()
        counts = self._pulled(COUNTER, self._counters, 1).reshape(self._counters.shape).astype(int)
        self._stale.pulled(counts)
        self._store.set(f"stale{self._ranks.rank}", json.dumps(self._stale.counted))
        self._meet()
        if self._ranks.rank == 0:
            told = [json.loads(self._store.get(f"stale{rank}")) for rank in range(len(self._ranks.workers))]
            for server, applied in enumerate(counts.sum(0)):
                stale = sum((Counter(one[server]) for one in told), Counter())
                self._store.set(f"applied{server}", json.dumps({"pushes": int(applied), "stale": stale}))
            self._runtime._worker.stop_server()
            for server in range(len(self._ranks.servers)):
                self._store.get(f"left{server}")
        self._meet()
        fleet.stop_worker()


def _held(program, name):
    """A table, as the program of a worker has it, which has no values."""
    kind = core.VarDesc.VarType.SELECTED_ROWS
    return program.global_block().create_var(name=name, shape=[1, 1], dtype="float32", persistable=True, type=kind)


def power_of_two(most):
    return 1 << most.bit_length() - 1


class Stale:
    """How many updates a server has applied between a worker's pull and its push, at most: its own are known; others'
    are those between that pull and the first that shows the push.

    counted: by server, how many updates -> how often.
    """

    def __init__(self, ranks):
        self._rank = ranks.rank
        self._under_way = [deque() for _ in ranks.servers]
        self.counted = [Counter() for _ in ranks.servers]

    def pulled(self, counts, step=None):
        """counts: (workers, servers), of pushes that each server has applied. step: that these were pulled for."""
        for server, (own, total) in enumerate(zip(counts[self._rank].tolist(), counts.sum(0).tolist())):
            waiting = self._under_way[server]
            while waiting and waiting[0][0] < own:
                number, own_then, others_then = waiting.popleft()
                self.counted[server][str(number - own_then + total - own - others_then)] += 1
            if step is not None:
                waiting.append((step, own, total - own))
