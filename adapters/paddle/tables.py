"""What networks with tables share in PaddlePaddle. A batch looks up rows of a table, whose gradient is these rows
(SelectedRows), and an update changes them alone."""

import paddle

from dlperf.adapters.api import Unsupported
from dlperf.adapters.paddle import runtime


def configure(job, ranks):
    """As runtime.configure."""
    if ranks.world_size > 1:
        raise Unsupported(
            "PaddlePaddle trains tables in one process so far: gradients of rows are not added up over ranks"
        )
    runtime.configure(job, ranks)


def once(rows):
    """Rows, each once, ascending, and where among these the given ones are. rows: (n,).

    A lazy Adam joins gradients of a row that comes twice by itself, but takes ten times as long for that. To sort here
    costs less, paddle.unique costs more (26,000 rows, of which 15,000 differ, one core: 10 ms, 3 ms, 350 ms)."""
    order = paddle.argsort(rows)
    found, places = paddle.unique_consecutive(paddle.gather(rows, order), return_inverse=True)
    return found, paddle.scatter(paddle.empty_like(places), order, places)
