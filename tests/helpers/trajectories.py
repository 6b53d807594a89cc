"""The trajectories that tests ask of real adapters."""

from dataclasses import replace

from dlperf.catalog import reader
from dlperf.planning.checks import from_arguments
from dlperf.planning.plan import from_spec
from dlperf.planning.spec import PROTOCOLS, Spec
from dlperf.precision import ASKED
from dlperf.proof.asked import Asked, trajectories
from dlperf.proof.judge import REFERENCE, Evidence

ADAPTERS = reader.adapters()
#: what a Certifier asks of a comparison
SPEC = Spec((), (), (), "cpu", "venv", PROTOCOLS["quick"], timeout=300, allow_reference=True)


def asked(
    framework: str, model: str, ranks: int, *settings: str, precision: str = "fp64", servers: int = 0, mode: str = ""
) -> Asked:
    """The trajectory in a row's own precision that proves it: by so many ranks on one node, with so many parameter
    servers. settings: as --set takes them."""
    words = {"model": model, "precision": precision, "frameworks": framework, "device": "cpu", "env": "venv"}
    rest = {**dict.fromkeys(["protocol", "compile", "timeout", "seed", "threads"]), "allow_reference": True}
    places = {"nproc_per_node": str(ranks), "set": list(settings) or None}
    if servers:
        places.update(parallelism="parameter-server", servers=str(servers), ps_mode=mode)
    arguments = {**words, **rest, **places, "data": "synthetic", "dry_run": False}
    (job,) = from_spec(from_arguments(arguments, ADAPTERS, ("fp64", *ASKED)), ADAPTERS).jobs
    own = next(one for one in trajectories(job) if one.precision == job.precision)
    return replace(own, ranks=ranks)


def as_reference(evidence: Evidence) -> Evidence:
    """As what others are held against."""
    return replace(evidence, trajectory=replace(evidence.trajectory, system=REFERENCE))
