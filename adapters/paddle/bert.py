"""BERT pretraining in PaddlePaddle: dygraph, AdamW; auto_cast and flash attention on tensor cores."""

import paddle
import paddle.nn.functional as F
from paddle import nn

from dlperf import models
from dlperf.adapters.paddle import optimizers, runtime
from dlperf.adapters.paddle.runtime import copy, product, versions
from dlperf.models import bert

__all__ = ["Network", "build", "copy", "loss", "product", "versions"]


def build(job, ranks):
    runtime.configure(job, ranks)
    config = models.config(job.model)
    flash = flash_of(job)
    network = Network(config, config.dropout * job.dropout, flash)
    runtime.load(network, job)
    recipe = bert.optimizer(job.batch_size * ranks.world_size)
    optimizer = optimizers.adamw(job, network, recipe)
    feed = runtime.Feed(job, ranks)
    effective = {
        "clip_norm": str(job.clip_norm or "off"),
        "dropout": rates(network),
        "masked_positions": str(config.masked),
        "gelu": "erf",
        "weight_decay": f"{recipe.weight_decay}, as float32",  # an attribute of the kernel, in float64 too
        "attention": attention(flash),
    }
    return runtime.Trainer(job, ranks, network, loss, optimizer, feed, effective)


def flash_of(job):
    """The float type of the fused attention kernel, which needs half precision and an Ampere or newer GPU; or None."""
    half = runtime.DTYPES[job.precision] if job.mixed else None
    return half if half and paddle.device.cuda.get_device_capability()[0] >= 8 else None


def attention(flash):
    """In words."""
    return f"scaled_dot_product_attention (flash, {flash})" if flash else "matmul, softmax, matmul"


def rates(network):
    """Of dropout, in words."""
    return ", ".join(sorted({str(layer.dropout) for layer in network.sublayers() if hasattr(layer, "dropout")}))


def loss(network, batch):
    mlm, nsp = network(batch)
    words = F.cross_entropy(mlm, batch["masked_ids"].flatten(), reduction="none").flatten()
    of_words = (words * batch["masked_weights"].flatten()).sum() / batch["masked_total"]
    follows = F.cross_entropy(nsp, batch["next_sentence_labels"])
    return of_words + follows, (mlm, nsp)


class Network(nn.Layer):
    """Names are the canonical ones of dlperf.models.bert.

    flash: the float type of the fused attention kernel; None: attention in single steps.
    """

    def __init__(self, config, dropout, flash=None):
        super().__init__()
        self.config, self.dropout, self.flash = config, dropout, flash
        self.seen = {}  # see runtime.Replica
        self.bert = nn.LayerDict(
            {
                "embeddings": Embeddings(config, dropout),
                "encoder": nn.LayerDict(
                    {"layer": nn.LayerList([Layer(config, dropout, flash) for _ in range(config.layers)])}
                ),
                "pooler": nn.LayerDict({"dense": nn.Linear(config.hidden, config.hidden)}),
            }
        )
        self.cls = nn.LayerDict({"predictions": Predictions(config), "seq_relationship": nn.Linear(config.hidden, 2)})

    def forward(self, batch):
        hidden = self.bert["embeddings"](batch["input_ids"], batch["token_type_ids"])
        rows, columns, width = hidden.shape
        mask = padding(batch["lengths"], rows, columns, hidden.dtype, self.flash)
        for layer in self.bert["encoder"]["layer"]:
            hidden = layer(hidden, mask)
        starts = paddle.arange(0, rows * columns, columns, dtype="int32").unsqueeze(1)
        masked = paddle.gather(hidden.reshape([-1, width]), (batch["masked_positions"] + starts).flatten())
        product, mlm = self.cls["predictions"](masked, self.bert["embeddings"].word_embeddings.weight)
        nsp = self.cls["seq_relationship"](paddle.tanh(self.bert["pooler"]["dense"](hidden[:, 0])))
        self.seen = {"mlm_logits": product.detach().reshape([rows, self.config.masked, -1]), "nsp_logits": nsp.detach()}
        return mlm, nsp


def padding(lengths, rows, columns, dtype, flash):
    """What is added to the scores: 0 inside a row, -10000 in its padding. (rows, 1, 1 or columns, columns)"""
    inside = paddle.arange(columns, dtype="int32") < lengths.unsqueeze(1)
    mask = ((inside.astype(dtype) - 1.0) * 10000.0).unsqueeze([1, 2])
    return mask.expand([rows, 1, columns, columns]).astype(flash) if flash else mask


class Embeddings(nn.Layer):
    def __init__(self, config, dropout):
        super().__init__()
        self.dropout = dropout
        self.word_embeddings = nn.Embedding(config.vocabulary, config.hidden)
        self.position_embeddings = nn.Embedding(config.positions, config.hidden)
        self.token_type_embeddings = nn.Embedding(config.token_types, config.hidden)
        self.LayerNorm = nn.LayerNorm(config.hidden, epsilon=config.norm_eps)

    def forward(self, words, types):
        positions = self.position_embeddings.weight[: words.shape[1]]
        x = self.word_embeddings(words) + self.token_type_embeddings(types) + positions
        return F.dropout(self.LayerNorm(x), self.dropout, training=self.training)


class Attending(nn.Layer):
    """A layer that attends. flash: as in Network."""

    def __init__(self, config, dropout, flash):
        super().__init__()
        self.heads, self.head_size, self.dropout, self.flash = config.heads, config.head_size, dropout, flash

    def attend(self, query, key, value, mask):
        """Of (batch, sequence, hidden) each, and so its output."""
        query, key, value = [part.reshape([0, 0, self.heads, self.head_size]) for part in (query, key, value)]
        return (self._flash if self.flash else self._attention)(query, key, value, mask).flatten(2)

    def _attention(self, query, key, value, mask):
        query, key, value = [part.transpose([0, 2, 1, 3]) for part in (query, key, value)]
        scores = paddle.matmul(query * self.head_size**-0.5, key, transpose_y=True) + mask
        weights = F.dropout(F.softmax(scores), self.dropout, training=self.training)
        return paddle.matmul(weights, value).transpose([0, 2, 1, 3])

    def _flash(self, query, key, value, mask):
        # auto_cast adds biases in float32
        query, key, value = [part.astype(self.flash) for part in (query, key, value)]
        return F.scaled_dot_product_attention(query, key, value, mask, self.dropout, training=self.training)


class Layer(Attending):
    def __init__(self, config, dropout, flash):
        super().__init__(config, dropout, flash)
        hidden = config.hidden
        parts = {name: nn.Linear(hidden, hidden) for name in ("query", "key", "value")}
        self.attention = nn.LayerDict({"self": nn.LayerDict(parts), "output": Output(hidden, config)})
        self.intermediate = nn.LayerDict({"dense": nn.Linear(hidden, config.intermediate)})
        self.output = Output(config.intermediate, config)

    def forward(self, x, mask):
        parts = [self.attention["self"][name](x) for name in ("query", "key", "value")]
        x = self._add_norm(self.attention["output"], self.attend(*parts, mask), x)
        return self._add_norm(self.output, F.gelu(self.intermediate["dense"](x)), x)

    def _add_norm(self, output, x, residual):
        return output.LayerNorm(residual + F.dropout(output.dense(x), self.dropout, training=self.training))


class Output(nn.Layer):
    def __init__(self, inputs, config):
        super().__init__()
        self.dense = nn.Linear(inputs, config.hidden)
        self.LayerNorm = nn.LayerNorm(config.hidden, epsilon=config.norm_eps)


class Predictions(nn.Layer):
    """The MLM head; its decoder is the word embedding."""

    def __init__(self, config):
        super().__init__()
        self.transform = Output(config.hidden, config)
        self.bias = self.create_parameter([config.vocabulary], is_bias=True)

    def forward(self, x, embedding):
        """The product of the decoder, and with its bias."""
        x = self.transform.LayerNorm(F.gelu(self.transform.dense(x)))
        product = paddle.matmul(x, embedding, transpose_y=True)
        return product, product + self.bias
