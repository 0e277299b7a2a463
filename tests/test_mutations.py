"""What counts as a mutant: one change that a program would notice, in a source that still compiles."""

import ast
import tomllib

import pytest

from tests.mutants import HARMLESS, MODULES, PACKAGE, ROOT, all_mutants, sample
from tests.mutations import mutations_of

SOURCE = '''"""A docstring with 1 < 2."""
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    x = 1


def largest(values: "list[int]" = 3, *, most: int | None = None) -> list[int]:
    """Another, 3 + 4."""
    assert len(values) > 0
    got = f"{len(values) + 1}"
    if most is not None and not values:
        raise ValueError(f"got {got}, {1 + 1}")
    return max(values[2:])
'''


def test_every_kind_of_change_and_no_other() -> None:
    assert [mutation.change for mutation in mutations_of(SOURCE)] == [
        "3 -> 0",
        "3 -> 2",
        "3 -> 4",
        "most is not None and (not values) -> most is not None or not values",
        "most is not None -> most is None",
        "not values -> values",
        "raise ValueError(f'got {got}, {1 + 1}') -> pass",
        "return max(values[2:]) -> return None",
        "max -> min",
        "2: -> :",
        "2: -> 2 + 1:",
        "2 -> 0",
        "2 -> 1",
        "2 -> 3",
    ]
    assert mutations_of(SOURCE, without=("largest",)) == []


@pytest.mark.parametrize("module", MODULES)
def test_mutants_compile_and_differ(module: str) -> None:
    source = (ROOT / PACKAGE / MODULES[module].path).read_text()
    mutants = all_mutants(module)
    assert len({mutant.key for mutant in mutants}) == len(mutants) > 5
    original = ast.dump(ast.parse(source))
    assert all(ast.dump(ast.parse(mutant.mutation.apply(source))) != original for mutant in mutants[::7])


def test_a_sample_has_its_size_and_a_share_of_every_module() -> None:
    chosen = sample(400, seed=0)
    assert len({mutant.key for mutant in chosen}) == 400
    assert {mutant.module for mutant in chosen} == set(MODULES)
    assert chosen == sample(400, seed=0) != sample(400, seed=1)


def test_what_is_listed_as_harmless_is_a_mutant_still() -> None:
    listed = [(row["module"], row["line"], row["change"]) for row in tomllib.loads(HARMLESS.read_text())["harmless"]]
    assert len(set(listed)) == len(listed)
    assert set(listed) <= {mutant.key for module in MODULES for mutant in all_mutants(module)}
