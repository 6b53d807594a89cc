"""What runs in a step of PyTorch, by torch.profiler: operators, and those that they call."""

from torch.profiler import ProfilerActivity, profile

from dlperf.adapters.profiling import Span, kind_of

#: the first whose pattern is found in an operator's path, of those that call it and its own name
KINDS = [
    ("optimizer", r"Optimizer\.|_foreach_|_amp_|_fused_|vector_norm"),
    ("communication", r"c10d|gloo|nccl|DistributedDataParallel|horovod"),
    ("attention", r"scaled_dot_product|^attention"),
    ("loss", r"cross_entropy|nll_loss|log_softmax"),
    ("convolution", r"aten::conv"),
    ("product", r"linear|addmm|matmul|::mm\b|onednn::"),
    ("normalisation", r"norm"),
    ("dropout", r"dropout|bernoulli"),
    ("pooling", r"pool|aten::mean"),
    ("embedding", r"embedding|aten::index|_index_put"),
    ("layout", r"copy_|aten::(to|clone|contiguous|cat|t|transpose|slice|select|view|reshape)(/|$)"),
    ("elementwise", r"aten::"),
    ("host", r""),
]
#: of a node of the backward pass, what it was called by
NODE = "autograd::engine::evaluate_function"


def spans(trainer, run):
    with profile(activities=[ProfilerActivity.CPU]) as taken:
        run()
    events = [one for one in taken.events() if one.time_range.end > one.time_range.start]
    forward = _forward(events)
    found = [
        Span(one.thread, 1e-6 * one.time_range.start, 1e-6 * one.time_range.end, one.name, _kind(one, forward))
        for one in events
    ]
    began, ended = min(one.begin for one in found), max(one.end for one in found)
    return [*found, Span("Python", began, ended, "Python", "host")]


def _forward(events):
    """What made each node of the backward pass, by its number: the last operator that began before the next number."""
    last = {}
    for one in events:
        if one.sequence_nr >= 0 and NODE not in _path(one):
            known = last.get(one.sequence_nr)
            if known is None or known.time_range.start < one.time_range.start:
                last[one.sequence_nr] = one
    return last


def _kind(event, forward):
    """Of a node of the backward pass, and of what it calls, the kind of the operator that made it."""
    path, outermost = _path(event), event
    while outermost.cpu_parent is not None:
        outermost = outermost.cpu_parent
    made = forward.get(outermost.sequence_nr) if outermost.name.startswith(NODE) else None
    if "AccumulateGrad" in path:
        return "elementwise"
    path = _path(made) if made is not None else path
    return kind_of(KINDS, path)


def _path(event):
    names = []
    while event is not None:
        names.append(event.name)
        event = event.cpu_parent
    return "/".join(reversed(names))
