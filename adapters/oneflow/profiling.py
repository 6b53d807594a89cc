"""What runs in a step of OneFlow on a CPU: the kernels of its nn.Graph, by the hook that OneFlow has for observers.

oneflow.profiler sees eager kernels alone, and ends the process where a wheel with CUDA finds no GPU. OneFlow's observer
that would trace a Graph's kernels, ProfilerKernelObserver, does nothing in the wheels. So while a profile is taken one
of ours is in its place: an object as C++ lays it out, with a method of ours. Of eager steps (float64) it sees nothing.
"""

import ctypes
import re
import threading
import time

import oneflow as flow
from oneflow.core.kernel.kernel_pb2 import KernelConf

from dlperf.adapters.profiling import Span, kind_of

if not flow.__version__.startswith("0.9.0"):
    raise ImportError(f"what OneFlow {flow.__version__} looks like in memory is not known")

#: the first whose pattern is found in "module:type" of an operation, or "module:type of scores"
KINDS = [
    ("communication", r"^System-Boxing|boxing|ccl"),
    ("input", r":input_conf"),
    ("optimizer", r"_optimizer:|:adam_bias_correction|^System-(Train|Regularize)|^clipping:"),
    ("host", r"^System|_conf$"),
    ("layout", r":(reshape|transpose|expand|cast|copy|slice|slice_grad|constant)$"),
    ("loss", r"^:"),  # in no module
    # of 1x1, which are products; the sum over images is of a weight's gradient
    ("convolution", r":conv|(conv\d|downsample\.0):(\w*matmul|reduce_sum_like)"),
    ("normalisation", r"(LayerNorm|bn\d|downsample\.1):(?!add_n)"),
    ("attention", r":(batch_matmul|softmax|softmax_grad)$|layer\.\d+:scalar_mul|of scores"),
    ("product", r"matmul|(dense|query|key|value|seq_relationship|predictions|fc):(broadcast_add|reduce_sum_like)"),
    ("dropout", r":dropout"),
    ("pooling", r":\w*pool|^network:(reduce_sum|broadcast_like)"),  # the mean over an image
    ("embedding", r":(batch_)?gather|:unsorted_"),
    ("elementwise", r""),
]
#: where oneflow::Singleton<oneflow::KernelObserver> has its pointer
OBSERVER = "_ZZN7oneflow9SingletonINS_14KernelObserverEvE7GetPPtrEvE3ptr"
#: a KernelObserver's methods: two destructors, WillForward, DidForward and four more; they take it, a context, a kernel
METHODS, WILL_FORWARD, DID_FORWARD = 8, 2, 3
METHOD = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
#: bytes from a Kernel to its KernelConf, behind its methods and a helper
CONF = 16

_library = ctypes.CDLL(flow._oneflow_internal.__file__)  # with all that it links
_size = _library._ZNK7oneflow10KernelConf12ByteSizeLongEv
_size.restype, _size.argtypes = ctypes.c_size_t, [ctypes.c_void_p]
_serialize = _library._ZNK6google8protobuf11MessageLite16SerializeToArrayEPvi
_serialize.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
_observers = []  # for good: a thread may still be in one


def spans(trainer, run):
    calls = []  # of each kernel as it begins and ends: which of both, thread, time, kernel

    def noting(which):
        return METHOD(lambda *called: calls.append((which, threading.get_ident(), time.perf_counter(), called[-1])))

    pointer = ctypes.c_void_p.in_dll(_library, OBSERVER)
    theirs = pointer.value
    methods = (ctypes.c_void_p * METHODS)()
    ctypes.memmove(methods, ctypes.c_void_p.from_address(theirs).value, ctypes.sizeof(methods))
    notes = {which: noting(which) for which in (WILL_FORWARD, DID_FORWARD)}
    for which, note in notes.items():
        methods[which] = ctypes.cast(note, ctypes.c_void_p).value
    ours = (ctypes.c_void_p * 4)(ctypes.addressof(methods))  # and an empty vector: theirs passes calls on to others
    _observers.append((notes, methods, ours))
    pointer.value = ctypes.addressof(ours)
    try:
        began, ended = run()
    finally:
        pointer.value = theirs
    return [*_kernels(list(calls), ended), Span("Python", began, ended, "Python and OneFlow's schedulers", "host")]


def _kernels(calls, ended):
    """Until steps ended: a kernel's thread may get Python's lock only then, and would be seen as running meanwhile."""
    operations = {kernel: _operation(kernel) for kernel in {call[-1] for call in calls}}
    # operations are numbered as they are defined: the network, the loss, their gradients, and then clipping
    last = max((_number(one.name) for one in operations.values() if one.name.startswith("network")), default=0)
    told = {kernel: _told(operation, last) for kernel, operation in operations.items()}
    begun = {}
    for which, thread, now, kernel in calls:
        if which == WILL_FORWARD:
            begun[thread] = now
        elif begun.get(thread, ended) < ended:  # else it began before, or has done its work
            yield Span(thread, begun.pop(thread), min(now, ended), *told[kernel])


def _operation(kernel):
    """What a Kernel was made of."""
    data = ctypes.create_string_buffer(_size(kernel + CONF))
    _serialize(kernel + CONF, data, len(data))
    return KernelConf.FromString(data.raw).op_attribute.op_conf


def _number(name):
    return int(re.search(r"(\d*)$", name).group() or 0)


def _told(operation, last):
    """Its type, and of which kind it is."""
    found = operation.WhichOneof("op_type")
    of = operation.user_conf.op_type_name if found == "user_conf" else found
    module = re.sub(rf"-?{of}-\d+$", "", operation.name)
    if not module and _number(operation.name) > last:
        module = "clipping"
    inputs = [name for names in operation.user_conf.input.values() for name in names.s]
    scores = " of scores" if of == "add_n" and any("-scalar_mul-" in name for name in inputs) else ""  # and the mask
    return of, kind_of(KINDS, f"{module}:{of}{scores}")
