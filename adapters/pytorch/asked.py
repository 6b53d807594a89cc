"""What a network asks of PyTorch's functions: rates and forms, read from its code at work on tensors without memory."""

import torch
from torch import nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from dlperf import models

#: of GELU, what its argument means
GELU = {"none": "erf"}


class Asked(TorchFunctionMode):
    """Keeps what functions are given while it is on: key of Trainer.effective -> values, each once."""

    def __init__(self):
        super().__init__()
        self.found = {}

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is nn.functional.dropout:
            self._note("dropout", str(kwargs["p"] if kwargs["training"] else 0.0))
        elif function is nn.functional.scaled_dot_product_attention:
            self._note("dropout", str(kwargs.get("dropout_p", 0.0)))
        elif function is torch.Tensor.bernoulli_:  # see masks.drawn
            self._note("dropout", str(args[1]))
        elif function is torch.ge and args[0].dtype == torch.int16:  # see masks.dropped
            self._note("dropout", f"{(args[1] + 2**15) / 2**16:.3g}")
        elif function is nn.functional.gelu:
            form = kwargs.get("approximate", "none")
            self._note("gelu", GELU.get(form, form))
        elif function is nn.functional.cross_entropy:
            self._note("label_smoothing", str(kwargs["label_smoothing"]))
        return function(*args, **kwargs)

    def _note(self, key, value):
        self.found.setdefault(key, {})[value] = None


def of(replica, batch, job):
    """For Trainer.effective, the keys that the job's family has. Nothing is computed or changed: neither statistics nor
    random numbers."""
    tensors = {name: tensor.to("meta") for name, tensor in (*replica.named_parameters(), *replica.named_buffers())}
    inputs = {name: tensor.to("meta") for name, tensor in batch.items()}
    with torch.no_grad(), Asked() as asked:
        functional_call(replica, tensors, (inputs,))
    told, found = models.family(job.model).EFFECTIVE, {"dropout": ["0.0"], **asked.found}
    return {key: ", ".join(values) for key, values in found.items() if key in told}
