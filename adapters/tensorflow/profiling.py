"""What runs in a step of TensorFlow, by tf.profiler: the operations of its executor, or the instructions of XLA."""

import glob
import os
import re
import tempfile

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from dlperf.adapters.profiling import Span, kind_of

#: the first whose pattern is found in an operation's "name:Type". Names hold the scopes of tf.nn and of the adapter, in
#: the backward pass after "gradient_tape/"; oneDNN's types begin with _Mkl. XLA/: what XLA made by itself
KINDS = [
    ("host", r"::|^__inference|PartitionedCall:|:_?Xla"),  # they wait for what they call
    ("input", r"\binput/|:(ReadFile|IteratorGetNext)"),
    ("optimizer", r"\boptimizer/"),
    ("communication", r":(Collective|Horovod)"),
    ("dropout", r"\bdropout/|^XLA/rng"),
    ("loss", r"(?i)softmax_?cross_?entropy"),
    ("normalisation", r"\b(moments|batchnorm)/|BatchNorm|:AssignVariableOp"),
    ("layout", r":(_Mkl)?(Cast|Transpose|Reshape|Concat|Pack|Pad|Slice|StridedSlice|Identity|ReadVariableOp)"),
    ("layout", r"^XLA/\w*(copy|transpose|concatenate|bitcast|convert)"),
    ("attention", r"\battention/"),
    ("convolution", r":\w*Conv2D|:convolution"),
    ("product", r":\w*MatMul|:BiasAdd|:dot"),
    ("pooling", r":\w*MaxPool|:Mean|:Tile|^XLA/\w*iota"),
    ("embedding", r":\w*(Gather|SegmentSum|OneHot)"),
    ("elementwise", r":\w"),
    ("host", r""),
]
#: what encloses the steps
PYTHON = "Python"


def spans(trainer, run):
    xla = trainer.effective["compile"].startswith("xla")
    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=3) if xla else None  # 2 lacks instructions
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder, options)
        with tf.profiler.experimental.Trace(PYTHON):
            run()
        tf.profiler.experimental.stop()
        (path,) = glob.glob(os.path.join(folder, "**", "*.xplane.pb"), recursive=True)
        with open(path, "rb") as file:
            planes = {one.name: one for one in xplane_pb2.XSpace.FromString(file.read()).planes}
    instructions = _instructions(planes["/host:metadata"]) if xla else {}
    plane = planes["/host:CPU"]
    every = [_span(line, event, plane, instructions) for line in plane.lines for event in line.events]
    # what else is no operation is of the interpreter or of the executor, or a part of an operation
    return [one for one in every if one.kind != "host" or one.name == PYTHON]


def _span(line, event, plane, instructions):
    name = plane.event_metadata[event.metadata_id].name
    if any(plane.stat_metadata[one.metadata_id].name == "hlo_op" for one in event.stats):
        name = instructions.get(name, name + ":")
    name = re.sub(r"_\d+\b", "", name)  # one for all layers
    begin = 1e-9 * line.timestamp_ns + 1e-12 * event.offset_ps
    return Span(line.id, begin, begin + 1e-12 * event.duration_ps, name, kind_of(KINDS, name))


def _instructions(plane):
    """Of each of XLA's instructions, the operation that it is of, or the first that it fuses."""
    from tensorflow.compiler.xla.service import hlo_pb2

    found = {}
    for stat in (stat for one in plane.event_metadata.values() for stat in one.stats):
        computations = hlo_pb2.HloProto.FromString(stat.bytes_value).hlo_module.computations
        held = {one.id: list(one.instructions) for one in computations}
        every = [one for instructions in held.values() for one in instructions]
        users = {operand: one for one in every for operand in one.operand_ids}
        for one in every:
            of = one
            while re.search("reduce-window|get-tuple|concatenate", of.name) and of.id in users:
                of = users[of.id]  # which goes on with the first parts of a sum or a maximum
            inside = [of, *(other for called in of.called_computation_ids for other in held[called])]
            random = any(other.opcode == "xor" for other in inside)
            own = "XLA/{}:{}".format("rng" if random else of.name.partition(".")[0], of.opcode)
            names = [f"{other.metadata.op_name}:{other.metadata.op_type}" for other in inside if other.metadata.op_name]
            found[one.name] = names[0] if names else own
    return found
