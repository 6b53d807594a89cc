"""What tests of all real frameworks share: environments, and trajectories of the adapters as they are."""

import functools

import pytest
from trajectories import ADAPTERS, SPEC, asked

from dlperf.envs import kinds, pythons
from dlperf.errors import RunError
from dlperf.proof.certify import Certifier
from dlperf.runs import bundle


@pytest.fixture(scope="session")
def environment():
    """Adapter and device -> the environment, made if it is not there. Without its Python a test is skipped."""

    @functools.cache
    def environment(name, device="cpu"):
        try:
            pythons.find(ADAPTERS[name].environments[device].python)
        except RunError as error:
            pytest.skip(f"{name} was not tested: {error}")
        return kinds.ensure(ADAPTERS[name], device, progress=print)

    return environment


@pytest.fixture(scope="session")
def evidence(environment, tmp_path_factory):
    """What `trajectories.asked` takes -> that trajectory, made once, with one thread for each rank."""
    root = tmp_path_factory.mktemp("evidence")
    bundle.copy_code(root / "code", [adapter for adapter in ADAPTERS.values() if adapter.default])
    certifier = Certifier(root, SPEC, print)

    @functools.cache
    def evidence(framework, *which, **more):
        one = asked(framework, *which, **more)
        return certifier.run(one, environment(framework, one.job.environment), threads=1)

    return evidence
