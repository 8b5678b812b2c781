"""Engines shared by the tests of the simulated engine."""

from collections.abc import Iterator

import pytest

from tests.enginesim import processes


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[processes.Process]:
    """An 8B engine with metrics, a hundred times faster than modelled."""
    log = tmp_path_factory.mktemp("small") / "log"
    with processes.engine(log, "--enable-metrics", "--served-model-name", "small") as process:
        yield process


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[processes.Process]:
    """A 70B engine on four GPUs."""
    log = tmp_path_factory.mktemp("large") / "log"
    model = "meta-llama/Llama-3.1-70B-Instruct"
    with processes.engine(log, "--tp-size", "4", model=model) as process:
        yield process
