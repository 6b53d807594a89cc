"""A whole training step as a CUDA graph: one launch in place of hundreds.

The step is enqueued under capture once for each batch that lies on the device, and replayed from then on. A replay
reads and writes the memory of the capture, so outputs live until the same batch is trained again.
"""

import torch

from dlperf.adapters.api import Unsupported

#: steps before the capture: compilers, cuDNN's search, the optimizer's state and the loss scale are made in the first,
#: what only later steps do is seen in the second
WARM = 2


def wanted(job, ranks, feed):
    """Whether the option `graph` asks for graphs. Unsupported where it insists on what is impossible."""
    lacks = None
    if job.device != "cuda":
        lacks = "CUDA graphs run on CUDA only"
    elif ranks.world_size > 1:
        lacks = "the averaging of gradients over ranks is not captured"
    elif not feed.fixed:
        lacks = "batches that are loaded have no fixed place on the device"
    asked = job.options["graph"]
    if asked == "on" and lacks:
        raise Unsupported(f"graph=on: {lacks}; take --set graph=off")
    return not lacks and (asked == "on" or (asked == "auto" and job.options["compile"] == "on"))


class Replayed:
    """Stands for `step`, a call that trains on a batch. batches: all that it will be called with, as they lie there."""

    def __init__(self, step, batches):
        self._step, self._batches = step, batches
        self._stream, self._graphs, self.steps = torch.cuda.Stream(), {}, 0

    def __call__(self, batch):
        self.steps += 1
        if self._graphs:
            graph, outputs = self._graphs[id(batch)]
            graph.replay()
            return outputs
        outputs = self._aside(batch)
        if self.steps == WARM:
            self._capture()
        return outputs

    def _aside(self, batch):
        """A step on the stream of the captures, where memory and libraries' workspaces are those of a capture."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            outputs = self._step(batch)
        torch.cuda.current_stream().wait_stream(self._stream)
        return outputs

    def _capture(self):
        pool = torch.cuda.graph_pool_handle()  # replays follow each other, so that they may share memory
        for batch in self._batches:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, stream=self._stream):
                outputs = self._step(batch)
            self._graphs[id(batch)] = graph, outputs
