import doctest
import importlib
import pkgutil

import pytest

import strongticket

# Importing a peer imports the solver it wraps, which is an optional package.
MODULES = [
    module.name
    for module in pkgutil.walk_packages(strongticket.__path__, "strongticket.")
    if not module.name.startswith("strongticket.bench.peers.")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0
