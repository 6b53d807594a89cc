"""Tables whose rows are spread over the ranks, by TorchRec: a step exchanges ids, rows and their gradients, and each
rank updates its rows within the backward pass. TorchRec has them in float32 alone on a CPU."""

import numpy
import torch
from torch import distributed
from torchrec import EmbeddingCollection, EmbeddingConfig, KeyedJaggedTensor
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.sharding_plan import construct_module_sharding_plan, row_wise
from torchrec.distributed.types import ShardingEnv
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

from dlperf.adapters import base
from dlperf.adapters.api import Sparse
from dlperf.adapters.pytorch import communication, runtime
from dlperf.models.parameters import count, initial

#: fbgemm's tables have widths that are multiples of it; other tables get columns of zeros, which nothing changes
WIDTHS = 4


class Table:
    """One of them. rows, width: of the whole one. first: the row that this rank's part begins with."""

    def __init__(self, one, job, ranks, rate):
        name = one.name.replace(".", "_")
        self.rows, self.width, self._key, self._dtype = one.shape[0], one.shape[1], name, job.weights_dtype
        columns = -(-self.width // WIDTHS) * WIDTHS
        config = EmbeddingConfig(name=name, num_embeddings=self.rows, embedding_dim=columns, feature_names=[name])
        whole = EmbeddingCollection(tables=[config], device=torch.device("meta"))
        apply_optimizer_in_backward(torch.optim.SGD, whole.parameters(), {"lr": rate})
        sharder, here = EmbeddingCollectionSharder(), torch.device("cpu")
        spread = construct_module_sharding_plan(
            whole,
            {name: row_wise(compute_kernel="fused")},
            sharder=sharder,
            world_size=ranks.world_size,
            local_size=ranks.world_size,
            device_type="cpu",
        )
        self._sharded = sharder.shard(whole, spread, ShardingEnv.from_process_group(distributed.group.WORLD), here)
        (shard,) = self._sharded.state_dict()[f"embeddings.{name}.weight"].local_shards()
        self.first, self._part = shard.metadata.shard_offsets[0], shard.tensor
        own = slice(self.first, self.first + len(self._part))
        self._part.zero_()
        self._part[:, : self.width] = torch.from_numpy(initial(one, job.seed, "float32", own))
        self.touched = torch.zeros(self.rows, dtype=torch.uint8)

    def __call__(self, ids):
        """The rows of these, which may be any number: one bag of them all."""
        self.touched[ids] = 1
        bag = KeyedJaggedTensor(keys=[self._key], values=ids, lengths=torch.tensor([len(ids)], dtype=torch.int32))
        return self._sharded(bag).wait()[self._key].values()[:, : self.width]

    def gathered(self):
        """Of all ranks, the rows that training touched."""
        touched = self.touched.clone()
        distributed.all_reduce(touched, distributed.ReduceOp.MAX)
        rows = touched.nonzero().flatten()
        own = rows[(rows >= self.first) & (rows < self.first + len(self._part))]
        parts = [None] * distributed.get_world_size()
        distributed.all_gather_object(parts, self._part[own - self.first, : self.width].numpy())
        return Sparse(rows.numpy(), numpy.concatenate(parts).astype(self._dtype))


class Trainer(runtime.LookedUp):
    """network: over rows, as dlperf.adapters.pytorch.word2vec.Looked. loss: network, batch, rows -> scalar, logits.
    looked_up: config, batch -> rows by table; all other tensors each rank has. rates: of each tensor, by SGD."""

    #: see dlperf.adapters.api.Trainer
    together = True

    def __init__(self, job, ranks, network, loss, feed, looked_up, effective, rates):
        super().__init__(job, network, feed, effective)
        if ranks.world_size == 1:
            distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
        self._loss, self._looked_up, self._rates = loss, looked_up, rates
        self._size, self._dtype = ranks.world_size, getattr(torch, job.weights_dtype)
        self._tables, self._dense = {}, {}
        chosen = looked_up(network.config, feed[0])
        for one in base.parameters(job):
            if one.name in chosen:
                self._tables[one.name] = Table(one, job, ranks, rates[one.name])
            else:
                values = torch.from_numpy(initial(one, job.seed, job.weights_dtype))
                self._dense[one.name] = values.requires_grad_()
        self.parameter_count, self.gradient_bytes = count(base.parameters(job)), 0
        self.effective.update(
            compile="none",
            threads=str(torch.get_num_threads()),
            optimizer="SGD, of tables fused into the backward pass (fbgemm's exact_sgd)",
            server_dtype="float32",
        )
        if ranks.world_size > 1:
            self.effective["communication"] = "rows of tables over the ranks: TorchRec, row-wise (gloo)"

    def _step(self, batch):
        chosen = self._looked_up(self._network.config, batch)
        rows = {name: table(chosen[name].long()).to(self._dtype) for name, table in self._tables.items()}
        loss, logits = self._loss(self._network, batch, {**self._dense, **rows})
        loss.backward()
        self._update()
        self._logits = logits if self._job.trace_steps else ()
        self.gradient_bytes = sum(one.numel() * 4 for one in rows.values())
        self.gradient_bytes += sum(one.numel() * one.element_size() for one in self._dense.values())
        return loss.detach()

    @torch.no_grad()
    def _update(self):
        if not self._dense:
            return
        gradients = [one.grad for one in self._dense.values()]
        flat = torch.cat([one.flatten() for one in gradients])
        distributed.all_reduce(flat)
        means = flat.div_(self._size).split([one.numel() for one in gradients])
        for (name, one), mean in zip(self._dense.items(), means):
            one.sub_(mean.view_as(one), alpha=self._rates[name])
            one.grad = None

    def wait(self):
        pass

    def all_reduce(self, count):
        return communication.all_reduce(communication.DataParallel("none"), count, torch.device("cpu"))

    def parameters(self):
        for name, table in self._tables.items():
            yield name, table.gathered()
        for name, one in self._dense.items():
            yield name, one.detach().numpy()

    def gradients(self):
        """Within the backward pass rows are updated, and their gradients gone."""
        return iter(())

    def moments(self):
        return {}

    def close(self):
        distributed.destroy_process_group()
