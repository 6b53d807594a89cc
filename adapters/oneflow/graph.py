"""The training step as OneFlow's static graph, and what the compiled graph tells of itself."""

import oneflow as flow
from oneflow.core.common import data_type_pb2

from dlperf import models
from dlperf.adapters.oneflow.communication import averaged
from dlperf.adapters.oneflow.optimizers import clipped

#: a Graph's names of types -> ours
DTYPE_NAMES = {"kFloat": "float32", "kFloat16": "float16", "kBFloat16": "bfloat16"}
#: what BatchNorm's operation calls its constants
NORM = {"decay": "momentum", "eps": "epsilon"}


class Graph(flow.nn.Graph):
    """The whole step, compiled: forward, backward, clipping and update. Its output is the loss alone, or with
    trace_steps the logits too, and the gradients as the backward pass leaves them; with deep gradient compression what
    compression.Deep.results says, and of the weights that are compressed the update is not in it.

    loss: network, batch -> scalar, logits. half: the 16 bits of mixed precision, else None.
    """

    def __init__(self, job, network, loss, optimizer, half):
        super().__init__()
        self.network, self.loss, self.traced = network, loss, job.trace_steps > 0
        self.weights = list(network.parameters())
        self.clip_norm = getattr(optimizer, "graph_clip_norm", None)
        self.deep = getattr(optimizer, "deep", None)
        self.add_optimizer(optimizer)
        if job.device == "cuda":
            self._fuse()
        if half:
            self.config.enable_amp(True, dtype=half)
        if job.precision == "amp_fp16":
            self.set_grad_scaler(flow.amp.GradScaler())

    def _fuse(self):
        """One kernel that updates many tensors in place of one each, which also takes the loss scale out and decays;
        gradients are added where they are written; cuDNN's algorithms are timed, not guessed."""
        self.config.allow_fuse_model_update_ops(True)
        self.config.enable_multi_tensor_update(True)
        self.config.allow_fuse_add_to_output(True)
        self.config.allow_fuse_cast_scale(True)
        self.config.enable_cudnn_conv_heuristic_search_algo(False)

    def build(self, batch):
        loss, logits = self.loss(self.network, batch)
        if self.deep:
            return self.deep.results(loss, logits)
        loss.backward()
        gradients = averaged(weight.grad for weight in self.weights)
        for weight, gradient in zip(self.weights, clipped(gradients, self.clip_norm)):
            weight.grad = gradient  # the optimizer takes what stands here at the end
        return (loss, logits, gradients) if self.traced else loss


def compute_dtype(graph):
    """Of the first large product of a compiled Graph: mixed precision's casts are in it."""
    job = graph._full_graph_proto
    products = [op for op in job.net.op if op.user_conf.op_type_name in ("broadcast_matmul", "conv2d")]
    return _dtype(job, products[0].user_conf.output["out"].s[0])


def kernels(graph, part):
    """Kinds of a compiled Graph's operations that have `part` in their names: what its passes made of them."""
    names = {op.user_conf.op_type_name for op in graph._full_graph_proto.net.op}
    return ", ".join(sorted(name for name in names if part in name))


def asked(graph, job):
    """What a compiled Graph's operations are given: for Trainer.effective."""
    ops = [op.user_conf for op in graph._full_graph_proto.net.op]

    def given(kind, name):
        values = {f"{op.attr[name].at_float:.6g}" for op in ops if op.op_type_name.startswith(kind) and name in op.attr}
        return ", ".join(sorted(values))

    family, found = models.family(job.model), {}
    if "dropout" in family.EFFECTIVE:
        found["dropout"] = given("dropout", "rate") or "0.0"
    if "gelu" in family.EFFECTIVE:
        kinds = {op.op_type_name for op in ops}
        forms = [form for kind, form in (("gelu", "erf"), ("fast_gelu", "tanh")) if kind in kinds]
        found["gelu"] = ", ".join(forms) or "without a kernel of its own"
    if family.normalised(models.config(job.model)):  # attributes of the kernel, in float64 too
        found.update({f"bn_{key}": f"{given('normalization', name)}, as float32" for key, name in NORM.items()})
    return found


def exchanged_dtypes(graph):
    """Of the tensors that a compiled Graph sums over the ranks: gradients, of which mixed precision may exchange some
    before it casts them to float32."""
    job = graph._full_graph_proto
    sbp = job.job_parallel_view_conf.op_name2nd_sbp_signature_conf

    def is_partial(op, name):
        return sbp[op].bn_in_op2nd_sbp[name].sbp_parallel[0].HasField("partial_sum_parallel")

    return {
        _dtype(job, name)
        for op in job.net.op
        for argument, names in op.user_conf.input.items()
        for index, name in enumerate(names.s)
        if is_partial(*name.split("/")) and not is_partial(op.name, f"{argument}_{index}")
    }


def _dtype(job, name):
    """Of a tensor of a compiled Graph."""
    return DTYPE_NAMES[data_type_pb2.DataType.Name(job.helper.lbn2logical_blob_desc[name].data_type)]
