"""What runs in a step of JAX, by XLA's profiler: its operations, whose names lead to what of the step they are of."""

import bisect
import re
import tempfile
from pathlib import Path

import jax

from dlperf.adapters.profiling import KINDS, Span, kind_of

#: of a path of scopes and operations, the first kind whose pattern is found, where no scope is a kind's
OPERATIONS = [
    ("communication", r"psum|all[_-]reduce"),
    ("convolution", r"conv_general|convolution"),
    ("product", r"dot"),
    ("dropout", r"rng|random"),
    ("pooling", r"reduce-window|select-and-scatter|iota"),  # XLA's own steps to the gradient of the maximum, too
    ("embedding", r"gather|scatter"),
    ("layout", r"(transpose|copy|reshape|broadcast|convert_element_type)$"),
    ("elementwise", r""),
]
PROGRAM = "jit__train"
#: products and convolutions; YNNPACK has reductions, too, which are over when their span is
SHARED = r"(ynn|dot|conv).*(dot_general|conv_general|XLA's own)"


def spans(trainer, run):
    paths = Paths(jax.devices()[0].client)
    with tempfile.TemporaryDirectory() as folder:
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        with jax.profiler.trace(folder, profiler_options=options):
            run()
        (path,) = Path(folder).rglob("*.xplane.pb")
        planes = jax.profiler.ProfileData.from_file(str(path)).planes
        lines = [list(line.events) for plane in planes if plane.name == "/host:CPU" for line in plane.lines]
    operations = [_span(number, event, paths) for number, line in enumerate(lines) for event in line if _runs(event)]
    operations.sort(key=lambda one: one.begin)
    return [*operations, *(part for number, line in enumerate(lines) for part in _parts(number, line, operations))]


def _runs(event):
    """Whether it is an operation of the step."""
    return dict(event.stats).get("hlo_module") == PROGRAM and not event.name.startswith("end: ")


def _span(thread, event, paths):
    path, name = paths[event.name], event.name.partition(".")[0]
    begin, told = 1e-9 * event.start_ns, path.partition("/")[2] or "XLA's own"
    return Span(thread, begin, begin + 1e-9 * event.duration_ns, f"{name} ({told})", kind(path or name))


def _parts(thread, events, operations):
    """What a thread of the pool did outside of operations' own spans. Of products and convolutions that several threads
    share only the start is in those; a part is of the one that began last."""
    operations = [one for one in operations if re.match(SHARED, one.name)]
    begins = [one.begin for one in operations]
    begun = None
    for event in events:
        now = 1e-9 * event.start_ns
        if event.name.endswith("::StartRegion"):
            begun = now
        elif event.name.endswith("::StopRegion") and begun is not None:
            before = bisect.bisect(begins, begun)
            if before:
                of = operations[before - 1]
                yield Span(thread, begun, now, f"{of.name}, a part", of.kind)
            begun = None


def kind(path):
    """Of "jit(_train)/transpose(jvp(attention))/exp", or of what XLA calls an operation that it has made itself."""
    scopes = re.findall(r"[a-z]+", path)
    if "product" in scopes:
        return "product"  # in attention and the embedding, too
    if "attention" in scopes:
        return "attention"
    named = [scope for scope in scopes if scope in KINDS]
    return named[-1] if named else kind_of(OPERATIONS, path)


class Paths:
    """The scopes and the operation that each of the program's operations is of: "jit(_train)/jvp(attention)/exp".
    Of a convolution or a product that XLA has made itself, that alone."""

    def __init__(self, client):
        texts = [module.to_string() for one in client.live_executables() for module in one.hlo_modules()[:1]]
        text = next(text for text in texts if text.startswith(f"HloModule {PROGRAM}"))
        self._own, self._called, self._of, self._product = {}, {}, {}, {}
        computation = ""
        for line in text.splitlines():
            begins = re.match(r"(?:ENTRY )?%([\w.-]+) \(", line)
            if begins:
                computation = begins[1]
            found = re.match(r"\s+(?:ROOT )?%([\w.-]+) = ", line)
            if not found:
                continue
            product = re.search(r" (convolution|dot)\(", line)
            name = re.search(r'op_name="([^"]*)"', line) or product
            calls = re.search(r"(?:calls|to_apply)=%([\w.-]+)", line)
            if calls:
                self._called[found[1]] = calls[1]
            if name:
                self._own[found[1]] = name[1]
                self._of[computation] = name[1]  # of the last, which is the root, if it has one
            if product:
                self._product[computation] = name[1]  # which takes the time, whatever is fused with it

    def __getitem__(self, operation):
        called = self._called.get(operation)
        return self._product.get(called) or self._own.get(operation) or self._of.get(called, "")
