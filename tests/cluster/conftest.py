"""Two hosts for the tests that need a cluster, one pair for all of them."""

import pytest
from testbed import Testbed, missing


@pytest.fixture(scope="session")
def testbed(tmp_path_factory):
    """A Testbed that is up. A test that shapes it or takes a host down undoes that."""
    if reason := missing():
        pytest.skip(reason)
    with Testbed(tmp_path_factory.mktemp("testbed")) as up:
        yield up
