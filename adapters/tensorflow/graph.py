"""What the graph of a training step tells of itself."""

import tensorflow as tf

from dlperf import models

#: operators that draw dropout's numbers
RANDOM = ("RandomUniform", "StatelessRandomUniformV2")


def asked(graph, job):
    """The operators that the step has, and what they are given: for Trainer.effective. graph: of its tf.function; what
    that calls is in it."""
    definition = graph.as_graph_def()
    parts = [definition.node, *(function.node_def for function in definition.library.function)]
    nodes = [node for part in parts for node in part]
    ops = {node.op for node in nodes}
    updates = ("ResourceApply", "ResourceScatter", "TensorScatterSub")  # of whole tensors, of rows, of single values
    found = {"optimizer": ", ".join(sorted(op for op in ops if op.startswith(updates)))}
    told = models.family(job.model).EFFECTIVE
    if "dropout" in told:
        found["dropout"] = ", ".join(sorted({rate for part in parts for rate in rates(part)})) or "0.0"
    if "gelu" in told:
        forms = {"Erfc": "erf", "Erf": "erf, written out (tf.nn.gelu has a float32 constant)"}
        without = "tanh" if "Tanh" in ops else "neither erf nor tanh"
        found["gelu"] = ", ".join(form for op, form in forms.items() if op in ops) or without
    if models.family(job.model).normalised(models.config(job.model)):
        fused = "FusedBatchNormV3" in ops
        found["batch_norm"] = "FusedBatchNormV3" if fused else "written out (FusedBatchNormV3 has no float64)"
        if job.device == "cuda" and job.options["compile"] == "on":  # outside of XLA FusedBatchNormV3 is cuDNN's
            found["batch_norm"] += ", by XLA"
    return found


def rates(nodes):
    """Of dropout: what random numbers are compared with, which bfloat16 has to two digits."""
    named = {node.name: node for node in nodes}
    for node in nodes:
        if node.op == "GreaterEqual":
            drawn, least = (named.get(name.partition(":")[0]) for name in node.input)
            while drawn is not None and drawn.op == "Cast":
                drawn = named.get(drawn.input[0].partition(":")[0])
            if drawn is not None and drawn.op in RANDOM and least is not None and least.op == "Const":
                yield f"{float(tf.make_ndarray(least.attr['value'].tensor)):.2g}"
