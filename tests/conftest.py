"""What every test sees: the report's header, and fixtures for instruction sets and guarded memory."""
import pytest
import support

import gemmkit
from gemmkit._kernels import _registry


def pytest_report_header(config):
    lines = [f"gemmkit {name:<10} {'native' if support.available(name) else 'not run: this processor lacks it'}"
             for name in _registry.compiled_isas()]
    return [*lines, "gemmkit emulated: none"]


@pytest.fixture(params=_registry.usable_isas())
def isa(request):
    """Each instruction set that this machine can run, forced while the test runs."""
    with gemmkit.isa(request.param):
        yield request.param


@pytest.fixture(params=support.wide_isas())
def wide_isa(request):
    """The same without sets that have nothing of their own for float32 and float64."""
    with gemmkit.isa(request.param):
        yield request.param


@pytest.fixture
def guarded():
    """Makes copies of arrays that end (or begin) exactly at a page that can't be touched; see support.guarded."""
    return support.guarded
