"""Transformer in NumPy, as dlperf.models.transformer has it: forward, backward and update written out."""

import numpy

from dlperf import models
from dlperf.adapters.numpy import runtime
from dlperf.adapters.numpy.bert import merge, split
from dlperf.adapters.numpy.convolution import relu
from dlperf.adapters.numpy.optimizers import AdamW
from dlperf.adapters.numpy.runtime import cross_entropy, product, versions
from dlperf.models import transformer

__all__ = ["Network", "build", "product", "versions"]

TABLE = "embedding.weight"


def build(job, ranks):
    runtime.configure(job, ranks)
    network = Network(job, models.config(job.model))
    effective = {
        "dropout": str(network.dropout),
        "label_smoothing": str(network.config.label_smoothing),
        "attention": "products and a softmax",
    }
    return runtime.Trainer(job, ranks, network, AdamW(job, transformer.optimizer(job.batch_size)), effective)


def loss(logits, batch, config):
    """Its value, and the gradient of the logits: (batch, sequence, vocabulary)."""
    weights = batch["target_weights"].reshape(-1) / batch["target_total"]
    rows = logits.reshape(-1, logits.shape[2])
    value, d = cross_entropy(rows, batch["labels"].reshape(-1), weights, config.label_smoothing)
    return value, d.reshape(logits.shape)


class Network(runtime.Layers):
    def __init__(self, job, config):
        super().__init__(job, runtime.start(job))
        self.config, self.dropout = config, config.dropout * job.dropout
        self._positions = transformer.positions(config).astype(job.weights_dtype)

    def step(self, batch):
        columns = numpy.arange(self.config.sequence)
        padding = numpy.where(columns < batch["source_lengths"][:, None], 0, -numpy.inf)[:, None, None]
        later = numpy.where(numpy.tri(len(columns), dtype=bool), 0, -numpy.inf)
        memory, encoder_back = self._side("encoder", batch["source"], {"self_attention": padding})
        masks = {"self_attention": later, "cross_attention": padding}
        x, decoder_back = self._side("decoder", batch["target"], masks, memory)
        logits, head_back = self.project(x, TABLE, None)
        self.shapes = {"logits": logits.shape[1:]}
        value, d = loss(logits, batch, self.config)
        encoder_back(decoder_back(head_back(d)))
        return value, (logits,)

    def _side(self, side, tokens, masks, memory=None):
        """The encoder, or the decoder, whose backward gives the gradient of memory, the encoder's output."""
        (x, back), backwards = self._embed(tokens), []
        for index in range(self.config.layers):
            for number, part in enumerate(transformer.SIDES[side], 1):
                layer = f"{side}.layers.{index}."
                x, part_back = self._around(layer, number, part, x, masks.get(part), memory)
                backwards.append(part_back)
        if self.config.pre_norm:
            x, norm_back = self.layer_norm(f"{side}.norm", x, self.config.norm_eps)

        def backward(d):
            of_memory = 0
            if self.config.pre_norm:
                d = norm_back(d)
            for part_back in reversed(backwards):
                d, more = part_back(d)
                of_memory = of_memory + more
            back(d)
            return of_memory

        return x, backward

    def _embed(self, tokens):
        root = self._positions.dtype.type(self.config.hidden**0.5)
        rows, rows_back = self.look_up([TABLE], [tokens])
        x, drop_back = self.drop(rows * root + self._positions, self.dropout)
        return x, lambda d: rows_back(drop_back(d) * root)

    def _around(self, layer, number, part, x, mask, memory):
        """A part, with its LayerNorm and what it is added to; its backward gives the gradients of x and of memory."""
        config, name = self.config, f"{layer}norm{number}"
        inputs, norm_back = self.layer_norm(name, x, config.norm_eps) if config.pre_norm else (x, None)
        if part == "feed_forward":
            y, back = self._feed_forward(layer + part, inputs)
        else:
            y, back = self._attention(layer + part, inputs, memory if part == "cross_attention" else inputs, mask)
        y, drop_back = self.drop(y, self.dropout)
        y = x + y
        if not config.pre_norm:
            y, norm_back = self.layer_norm(name, y, config.norm_eps)

        def backward(dy):
            d = dy if config.pre_norm else norm_back(dy)
            of_inputs, of_memory = back(drop_back(d))
            if part != "cross_attention":
                of_inputs, of_memory = of_inputs + of_memory, 0
            return d + (norm_back(of_inputs) if config.pre_norm else of_inputs), of_memory

        return y, backward

    def _attention(self, name, x, memory, mask):
        heads, project = self.config.heads, self.project
        q, q_back = project(x, f"{name}.query.weight", None)
        k, k_back = project(memory, f"{name}.key.weight", None)
        v, v_back = project(memory, f"{name}.value.weight", None)
        inputs = [split(one, heads) for one in (q, k, v)]
        context, back = self.attend(*inputs, mask, lambda p: self.drop(p, self.dropout))
        y, output_back = project(merge(context), f"{name}.output.weight", None)

        def backward(dy):
            dq, dk, dv = (merge(one) for one in back(split(output_back(dy), heads)))
            return q_back(dq), k_back(dk) + v_back(dv)

        return y, backward

    def _feed_forward(self, name, x):
        inner, inner_back = self.dense(f"{name}.inner", x)
        active, relu_back = relu(inner)
        dropped, drop_back = self.drop(active, self.dropout)
        y, back = self.dense(f"{name}.outer", dropped)
        return y, lambda dy: (inner_back(relu_back(drop_back(back(dy)))), 0)
