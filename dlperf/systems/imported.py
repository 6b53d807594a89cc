"""Systems that are figures alone: what the logs of runs that were made elsewhere tell, or what was published."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from dlperf.catalog.adapter import Adapter
from dlperf.envs.environment import Environment
from dlperf.planning.spec import Spec
from dlperf.runs.events import Stream
from dlperf.schema import Job, Window
from dlperf.systems.system import System
from dlperf.upstream import logs
from dlperf.upstream.commands import logged_steps


class Imported(System):
    """Its one verb; the others are told in dlperf.systems.system."""

    def read(
        self, adapter: Adapter, job: Job, spec: Spec, repeat: int, environment: Environment, folder: Path
    ) -> Stream:
        """A log is copied to the run's folder first, so that the comparison keeps what its figures are from."""
        of_model = adapter.imported_of(job.model, job.device, job.precision)
        size = (job.nnodes, job.nproc_per_node, job.batch_size)
        found = next((one for one in of_model if one.size == size and repeat < one.runs), None)
        if found is None:
            return _nothing(f"{adapter.folder / 'adapter.toml'} no longer has this run")
        if found.log is None:
            return _published(found.rates[repeat], job, found.versions, found.effective)
        log = found.files[repeat]
        try:
            shutil.copyfile(log, folder / log.name)
        except OSError as error:
            return _nothing(f"{log} cannot be read: {error.strerror or error}")
        wanted = logged_steps(found.log, spec.protocol)
        return logs.stream(folder / log.name, found.log, wanted, job, found.versions, found.effective)


def _nothing(why: str) -> Stream:
    return Stream(failed={"kind": "no_figures", "message": why})


def _published(rate: float, job: Job, versions: Mapping[str, str], effective: Mapping[str, str]) -> Stream:
    """A published rate is that of one step: nobody tells how many there were."""
    window = Window(0, 1, job.global_batch_size, job.global_batch_size / rate, None, None)
    return Stream(start={"versions": versions}, warm={"effective": effective}, windows=(window,), end={})
