"""The ranges in `pyproject.toml` are such that `make test-oldest` tests their lower ends."""

import re

import pytest

from tests.oldest import TOOLS, constraints, lowest, oldest, requirements

EVERY = [(extra, line) for extra, lines in requirements().items() for line in lines]


@pytest.mark.parametrize(("extra", "requirement"), EVERY)
def test_every_requirement_has_a_lower_bound_that_is_the_same_in_every_extra(extra: str, requirement: str) -> None:
    name, bound = lowest(requirement)
    assert oldest().get(name, bound) == bound
    assert name in oldest() or extra in TOOLS


@pytest.mark.parametrize("requirement", ["numba", "numba>0.60", "numba==0.60", "numba<1", "numba>=0.60,!=0.61"])
def test_other_requirements_are_refused(requirement: str) -> None:
    with pytest.raises(ValueError, match="needs NAME>=VERSION"):
        lowest(requirement)


def test_constraints_name_every_package_once_and_what_users_need_exactly() -> None:
    lines = [re.split("(==|<=)", line) for line in constraints()]
    names = [name for name, _, _ in lines]
    assert len(set(names)) == len(names)
    assert {name: bound for name, sign, bound in lines if sign == "=="} == oldest()
    assert {"pytest", "hypothesis"} <= set(names) - set(oldest())
