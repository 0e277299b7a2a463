r"""Find which parameters are queries and keys, and how fused ones are laid out, by experiments on the module.

Scores are products of a query and a key, so outputs do not change when queries are multiplied by $c$ and keys divided
by it. This identifies them, whatever their names. The same holds for the up and down projections of a gated MLP.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

from strongticket.learn.groups import Place
from strongticket.learn.probe import FACTOR, Probe, Scaled
from strongticket.learn.roles import (
    cuts_of,
    is_stack,
    label_of,
    mlp_role_of,
    output_axis,
    roles_of,
    site_of,
    usual_cut,
)
from strongticket.models.gpt2 import Group
from strongticket.tickets.fused import Cut, Role

NO_EFFECT = "its scale has no effect: a later layer undoes it, as a norm does"
MOVED = "outputs change when queries are multiplied by a number and keys divided by it, in every layout tried"
_MOST_WAYS = 200  # of splitting one attention


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of a parameter."""

    role: Role | None = None
    cut: Cut | None = None  # if it holds several tensors, named by their roles
    note: str = ""  # for people
    refused: bool = False  # it is called a query or a key, but this was not confirmed

    def role_of(self, part: str) -> Role | None:
        """Return the role of a part, by its name."""
        name: Any = part.rpartition(".")[2]
        return self.role if not name or name.isdigit() else name

    def note_of(self, part: str) -> str:
        """Return the note on a part; values have no scale, so none."""
        return "" if self.note == NO_EFFECT and self.role_of(part) not in ("query", "key") else self.note


# Makes the probe for checking names, when needed; or returns why there is none, "" if names need no check.
MakeProbe = Callable[[], Probe | str]


def find_roles(places: Mapping[str, Place], groups: Mapping[str, Group], probe: MakeProbe) -> dict[str, Found]:
    """Find the role of each parameter of a module.

    Args:
        places: of the parameters, by first name.
        groups: of the parameters, likewise.
        probe: makes the probe for checking names.
    """
    attention = [place for name, place in places.items() if groups[name] == "attention"]
    mlp = [place for name, place in places.items() if groups[name] == "mlp"]
    found = {place.name: Found(mlp_role_of(place)) for place in mlp}
    for kind in _kinds(mlp):
        axis = _axis_of_stacks(kind[0])
        found |= {place.name: Found(mlp_role_of(place), _experts(place, axis)) for site in kind for place in site}
        found |= _gated(kind, probe)
    found |= {place.name: Found(roles[0]) for place in attention if len(roles := roles_of(place)) == 1}
    for kind in _kinds(place for place in attention if {*roles_of(place)} - {"output"}):
        if any(role in _OPPOSED for place in kind[0] for role in roles_of(place)):
            found |= _checked(kind, probe)
    return found


def _kinds(places: Iterable[Place]) -> list[list[list[Place]]]:
    """Group the matrices of each site, then the sites that look alike: most layers are of one kind."""
    sites: dict[str, list[Place]] = defaultdict(list)
    for place in places:
        if place.parameter.dim() > 1:
            sites[site_of(place)].append(place)
    kinds: dict[Any, list[list[Place]]] = defaultdict(list)
    for site in sites.values():
        around = site[0].modules[-2:][0]
        kinds[type(around), *((label_of(place), place.parameter.shape) for place in site)].append(site)
    return list(kinds.values())


# --- Attention -------------------------------------------------------------------------------------------------------

_OPPOSED = {"query": FACTOR, "key": 1 / FACTOR}


def _checked(sites: list[list[Place]], make_probe: MakeProbe) -> dict[str, Found]:
    """Find out how to split sites of one kind."""
    first, probe = sites[0], make_probe()
    if isinstance(probe, Probe) and not probe.moved([Scaled(place.name, 0) for site in sites for place in site]):
        probe = "the outputs do not depend on it"
    if not isinstance(probe, Probe):
        by_name = [usual_cut(place, roles_of(place)) for place in first]
        return _all_found(sites, by_name, f"by its name, not checked: {probe}" if probe else "")
    choices = [[*cuts_of(place, roles)] if len(roles := roles_of(place)) > 1 else [None] for place in first]
    for ways in islice(product(*choices), _MOST_WAYS):
        scaled = [each for site in sites for each in _scaled(site, ways)]
        if {each.factor for each in scaled} == {*_OPPOSED.values()} and not probe.moved(scaled):
            queries = [each for each in scaled if each.factor == FACTOR]
            return _all_found(sites, ways, "" if probe.moved(queries) else NO_EFFECT)
    return {place.name: Found(note=MOVED, refused=True) for site in sites for place in site}


def _scaled(site: Sequence[Place], ways: Sequence[Cut | None]) -> Iterator[Scaled]:
    """Multiply the queries of a site and divide its keys, for one way of splitting it."""
    for place, cut in zip(site, ways, strict=True):
        for role in roles_of(place):
            if role in _OPPOSED:
                yield Scaled(place.name, _OPPOSED[role], cut, role)


def _all_found(sites: list[list[Place]], ways: Sequence[Cut | None], note: str) -> dict[str, Found]:
    found = {}
    for place, cut in ((place, cut) for site in sites for place, cut in zip(site, ways, strict=True)):
        roles = roles_of(place)
        # Several in one, in an unknown layout.
        unknown = cut is None and len(roles) > 1
        found[place.name] = Found(roles[0] if len(roles) == 1 else None, cut, note, unknown)
    return found


# --- MLPs ------------------------------------------------------------------------------------------------------------


def _axis_of_stacks(site: Sequence[Place]) -> int:
    """Return the output axis of stacked experts: the last matrix has as many outputs as the first has inputs."""
    shapes = [place.parameter.shape for place in site if is_stack(place)]
    if len(shapes) < 2:
        return 0
    fits = [shapes[0][2 - axis] == shapes[-1][1 + axis] for axis in (0, 1)]
    # The first may have twice as many outputs, for gates.
    fits = [fit and shapes[0][1 + axis] % shapes[-1][2 - axis] == 0 for axis, fit in enumerate(fits)]
    return int(fits == [False, True])


def _experts(place: Place, axis: int) -> Cut | None:
    """Split a stack into its experts, with outputs along an axis."""
    shape = place.parameter.shape
    return Cut(axis, (("", shape[1 + axis]),), stack=shape[0]) if is_stack(place) else None


def _gated(sites: list[list[Place]], make_probe: MakeProbe) -> dict[str, Found]:
    """Split gate and up where an MLP's first matrix has twice as many outputs as its second has inputs."""
    for up, down in _halves(sites[0]) if len(sites[0]) == 2 else ():
        if not isinstance(probe := make_probe(), Probe):
            return {}
        outer = [Scaled(out.name, 1 / FACTOR) for _, out in sites]
        gate, inner = (
            [Scaled(into.name, FACTOR, up, part) for into, _ in sites for part in up.names() if part.endswith(half)]
            for half in ("gate", "up")
        )
        # Behind a norm, only the gates show that outputs depend on the MLP at all.
        if not probe.moved([*inner, *outer]) and (probe.moved(outer) or probe.moved(gate)):
            return {
                name: found
                for into, out in sites
                for name, found in ((into.name, Found(cut=up)), (out.name, Found("down", down)))
            }
    return {}


def _halves(site: list[Place]) -> Iterator[tuple[Cut, Cut | None]]:
    """Yield the ways in which the first of two matrices may hold gate and up."""
    into, out = site
    shape, other = into.parameter.shape, out.parameter.shape
    stacked = is_stack(into) and is_stack(out)
    if not stacked and not len(shape) == len(other) == 2:
        return
    # torch's linear layers have outputs first, some stacks last.
    for axis in (0, 1) if stacked else (output_axis(into.holder),):
        middle = other[-2:][1 - axis]
        for width, blocks in ((middle, 1), (1, middle)):
            for order in (("gate", "up"), ("up", "gate")):
                cut = Cut(axis, tuple((name, width) for name in order), blocks, shape[0] if stacked else 0)
                if cut.fits(shape):
                    yield cut, _experts(out, axis)
