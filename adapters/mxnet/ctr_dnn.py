"""CTR-DNN in MXNet: a row_sparse table and dense layers in a KVStore, here or on parameter servers."""

from mxnet import nd

from dlperf import models
from dlperf.adapters.mxnet import optimizers, runtime, tables
from dlperf.adapters.mxnet.layers import of_two_classes
from dlperf.adapters.mxnet.runtime import copy, product, versions
from dlperf.models import ctr_dnn

__all__ = ["Network", "build", "copy", "loss", "product", "serve", "versions"]


def build(job, ranks):
    runtime.configure(job, ranks)
    config, recipe = models.config(job.model), ctr_dnn.optimizer(job.batch_size * ranks.world_size)
    optimizer = optimizers.LazyAdam(recipe, len(ctr_dnn.parameters(config)))
    return tables.Trainer(job, ranks, Network(config), loss, optimizer)


def serve(job, ranks):
    return tables.serve(job, ranks)


def loss(network, batch, rows, places):
    logits = network(batch, rows, places)
    # exact, since 1e-6 is 2e-4 of a loss that has come down to 0.006
    return of_two_classes(nd, logits, nd.array(batch["clicked"])).mean(), (logits,)


class Network:
    """Over the rows of the table that were looked up, each once, and the dense layers' tensors. places: where among the
    rows those that `looked_up` names are."""

    compiled = "none"

    def __init__(self, config):
        self.config = config
        self.shapes, self.compute_dtype = {}, None

    def looked_up(self, batch):
        """The rows that a batch needs of its table."""
        return {"emb.weight": batch["categories"].reshape(-1)}

    def __call__(self, batch, rows, places):
        numbers = batch["numbers"]
        of_slots = nd.take(rows["emb.weight"], places["emb.weight"]).reshape((len(numbers), -1))
        x = nd.concat(of_slots, numbers, dim=1)
        for name in ctr_dnn.LAYERS:
            weight = rows[f"{name}.weight"]
            x = nd.FullyConnected(x, weight, rows[f"{name}.bias"], num_hidden=len(weight))
            if name != ctr_dnn.LAYERS[-1]:
                x = nd.relu(x)
        self.compute_dtype = x.dtype
        slots = batch["categories"].shape[1]
        self.shapes = {"logits": x.shape[1:], "numbers": numbers.shape[1:], "categories": (slots,)}
        return x
