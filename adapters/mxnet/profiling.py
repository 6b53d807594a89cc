"""What runs in a step of MXNet, by mx.profiler: the operators that the engine's threads execute."""

import json
import os
import re
import tempfile

import mxnet as mx

from dlperf.adapters.profiling import Span, kind_of

#: the first whose pattern is found in an operator's name
KINDS = [
    ("communication", r"(?i)store|horovod"),
    ("input", r"^_image_"),
    ("optimizer", r"_update$|^dot$|^Concat$|sqrt|_rdiv_|_minimum_|^broadcast_(mul|sub|div)$"),
    ("attention", r"batch_dot|_backward_softmax|^softmax"),
    ("loss", r"log_softmax|pick|sum|mean|negative"),
    ("convolution", r"Convolution"),
    ("product", r"FullyConnected"),
    ("normalisation", r"Norm"),
    ("dropout", r"Dropout"),
    ("pooling", r"Pooling"),
    ("embedding", r"Embedding|take"),
    ("layout", r"_cast$|^Cast|^Copy|_copy|transpose|[Rr]eshape|slice|expand_dims|broadcast_axis"),
    ("host", r"^(Delete|WaitForVar)"),
    ("elementwise", r""),
]
#: the optimizer's too, in float64: what came last of those that are not tells
SHARED = r"^_(mul|plus|div)_scalar$|^broadcast_add$"
#: of these the first after a sum tells whether that is of scores and masks
AFTER_SUM = ("softmax", "LayerNorm", "Activation")


def spans(trainer, run):
    trainer.run_one_by_one()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "profile.json")
        # without continuous_dump, which is on unless told and works once per process
        mx.profiler.set_config(filename=path, profile_symbolic=True, profile_imperative=True, continuous_dump=False)
        mx.profiler.set_state("run")
        run()
        mx.profiler.set_state("stop")
        mx.profiler.dump()
        with open(path, encoding="utf-8") as file:
            text = file.read()
    # from the second dump on, a comma comes first
    events = json.loads(re.sub(r"\[\s*,", "[", text, count=1))["traceEvents"]
    both = [event for event in events if event["ph"] in "BE"]  # the end follows its beginning
    found = [
        Span(begin["tid"], 1e-6 * begin["ts"], 1e-6 * end["ts"], begin["name"], kind_of(KINDS, begin["name"]))
        for begin, end in zip(both[::2], both[1::2])
    ]
    began, ended = min(one.begin for one in found), max(one.end for one in found)
    return [*_in_context(found), Span("Python", began, ended, "Python", "host")]


def _in_context(found):
    """With the kinds of operators that one name does not tell. Sums over ranks go on while their thread runs others:
    they are one more thread, each from the end of the one before."""
    found = sorted(found, key=lambda one: one.begin)
    before, until = "", 0.0
    attends = any(one.name == "softmax" for one in found)  # else its products are the excitation's, of SE-ResNets
    for index, one in enumerate(found):
        if one.kind == "communication":
            one = one._replace(thread=one.kind, begin=min(max(one.begin, until), one.end))
            until = max(until, one.end)
        elif re.search(SHARED, one.name):
            one = one._replace(kind="optimizer") if before == "optimizer" else one
        elif one.name == "elemwise_add":
            after = next((other.name for other in found[index:] if other.name in AFTER_SUM), "")
            one = one._replace(kind="attention") if after == "softmax" else one
        elif one.name == "batch_dot" and not attends:
            one = one._replace(kind="elementwise")
        elif one.kind != "host" and not one.name.startswith("_backward_"):
            before = one.kind
        yield one
