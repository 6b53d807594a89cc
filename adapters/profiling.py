"""Where the time of a step went, by kinds of operations. Python >= 3.7, standard library only."""

import re
from collections import Counter
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Tuple

#: what an operation is for. layout: copies, transposes and casts; host: an interpreter or a scheduler, in no operation
KINDS = {
    "convolution": "convolutions and their gradients",
    "product": "matrix products outside of attention, with their biases",
    "attention": "scores, softmax, context and their gradients, with attention's own dropout if it is one kernel",
    "normalisation": "BatchNorm, LayerNorm",
    "elementwise": "activations, sums of residuals, biases that stand alone",
    "dropout": "masks, their random numbers, and what applies them",
    "pooling": "max and average pooling",
    "embedding": "look-ups of rows, and their gradients",
    "loss": "log-softmax, cross-entropy",
    "layout": "copies, transposes and casts",
    "optimizer": "the update, with clipping and loss scaling",
    "communication": "between ranks",
    "input": "batches",
    "host": "the interpreter or the scheduler, while no operation runs",
}


class Span(NamedTuple):
    """An operation as a profiler saw it. begin, end: seconds, on one clock for all. thread: any name; spans of one
    thread lie apart or in each other. kind: of KINDS."""

    thread: Any
    begin: float
    end: float
    name: str
    kind: str


def kind_of(rules: Iterable[Tuple[str, str]], text: str, flags: int = 0) -> str:
    """The kind of the first rule, (kind, pattern), whose pattern is found in a text; the last one fits all."""
    return next(kind for kind, pattern in rules if re.search(pattern, text, flags))


Key = Tuple[str, str]  # kind and name


def attributed(spans: Iterable[Span]) -> "Tuple[Dict[Key, float], Counter[Key]]":
    """Seconds of each kind and name, and how often it ran. Every moment in which something runs is counted once: on
    each thread for the innermost operation, where several threads run for each in equal parts, and for the host where
    nothing else runs. So the sum is how long anything ran; what lacks of a step's seconds was waited."""
    spans = list(spans)
    changes = []  # of what runs: time, thread, what runs there from then on
    threads = {}  # type: Dict[Any, List[Span]]
    for span in spans:
        threads.setdefault(span.thread, []).append(span)
    for thread, on_it in threads.items():
        changes += [(time, thread, key) for time, key in _innermost(on_it)]
    changes.sort(key=lambda change: change[0])
    seconds, running, now = {}, {}, 0.0  # type: Dict[Key, float], Dict[Any, Key], float
    for time, thread, key in changes:
        if running and time > now:
            at_work = [one for one in running.values() if one[0] != "host"] or list(running.values())
            for one in at_work:
                seconds[one] = seconds.get(one, 0.0) + (time - now) / len(at_work)
        now = time
        if key is None:
            running.pop(thread, None)
        else:
            running[thread] = key
    return seconds, Counter((span.kind, span.name) for span in spans)


def _innermost(spans: "List[Span]") -> "Iterator[Tuple[float, Any]]":
    """When what runs innermost on one thread changes, and to what; None: nothing."""
    stack = []  # type: List[Span]
    for span in sorted(spans, key=lambda one: (one.begin, -one.end)):
        while stack and stack[-1].end <= span.begin:
            yield from _ended(stack)
        yield span.begin, (span.kind, span.name)
        stack.append(span)
    while stack:
        yield from _ended(stack)


def _ended(stack: "List[Span]") -> "Iterator[Tuple[float, Any]]":
    done = stack.pop()
    yield done.end, (stack[-1].kind, stack[-1].name) if stack else None
