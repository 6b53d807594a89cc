"""What runs in a step of PaddlePaddle on a CPU, by paddle.profiler: operators, and nodes of the backward pass."""

import re

from paddle.profiler import Profiler, ProfilerTarget

from dlperf.adapters.profiling import Span, kind_of

#: the first whose pattern is found in an operator's name, what its neighbours tell of it, and the layers that it is in
KINDS = [
    ("elementwise", r"^Global_"),  # of a node of the backward pass: the sum of gradients that meet
    ("optimizer", r"^sgd| in .*/Optimization Step"),
    ("loss", r"^cross_?entropy| in .*/Replica$"),
    ("attention", r"^(softmax|scale)|of attention"),
    ("convolution", r"^conv2d"),
    ("product", r"^matmul|of a bias"),
    ("normalisation", r"^(batch|layer)_?norm"),
    ("dropout", r"^dropout"),
    ("pooling", r"^pool2d"),
    ("embedding", r"^(embedding|gather)"),
    ("layout", r"^(reshape|transpose|flatten|squeeze|unsqueeze|cast|slice|expand|assign|full|arange|share_data)"),
    ("communication", r"all_?reduce|reducer|process_?group"),
    ("elementwise", r""),
]
#: types of events that call operators, or are Python; what else is in an operator counts as that
SCOPES = ("ProfileStep", "Forward", "Backward", "Optimization", "Dataloader", "UserDefined", "PythonUserDefined")

#: gradients of sums
SUMS = ("AddGradNode", "add_grad")


def spans(trainer, run):
    with Profiler(targets=[ProfilerTarget.CPU], on_trace_ready=lambda profiler: None) as profiler:
        run()
    threads = profiler.profiler_result.get_data()
    profiler.profiler = None  # a process has one at a time
    for thread, root in threads.items():
        events = [found for top in root.children_node for found in _events(top, "")]
        operators = [(event, scope) for event, scope in events if _is_operator(event)]
        for event, _ in events:
            if event.type.name in SCOPES:
                yield _span(thread, event, "input" if event.type.name == "Dataloader" else "host")
        for (event, scope), name in zip(operators, _marked([_name(event) for event, _ in operators])):
            yield _span(thread, event, kind_of(KINDS, f"{name} in {scope}", re.IGNORECASE))


def _events(event, scope):
    """An event and all in it, in the order in which they began, each with the layers and passes that it is in."""
    yield event, scope
    inside = scope if event.type.name == "UserDefined" else f"{scope}/{event.name}"
    for child in event.children_node:
        yield from _events(child, inside)


def _is_operator(event):
    """A node of the backward pass is Local_..., in Global_..., which sums up gradients as well."""
    return event.type.name == "Operator" or event.name.startswith("Local_")


def _name(event):
    """matmul or MatmulGradNode, of the eager mode's names and of a graph's."""
    return re.sub(r" dygraph$|_$|^Local_|^pd_op\.", "", event.name)


def _span(thread, event, kind):
    return Span(thread, 1e-9 * event.start_ns, 1e-9 * event.end_ns, _name(event), kind)


def _marked(names):
    """Operators in their order, with what tells products and sums apart. Attention's products are those next to its
    softmax, in both directions: the queue of the backward pass takes the scores' before the values'."""
    marked, product, after_softmax = list(names), None, False
    for index, name in enumerate(names):
        before, after = names[max(index - 1, 0)], names[min(index + 1, len(names) - 1)]
        if re.match("matmul", name, re.IGNORECASE):
            if after_softmax:
                marked[index] += " of attention"
            product, after_softmax = index, False
        elif re.match("softmax", name, re.IGNORECASE) and product is not None:
            marked[product] += " of attention"
            after_softmax = True
        elif (name == "add" and before == "matmul") or (name in SUMS and re.search("Accumulation|matmul", after)):
            marked[index] += " of a bias"
        if name == "softmax" and before == "add":
            marked[index - 1] = "add of attention"  # the mask
    return marked
