"""The judges of `make bench-exact` agree with the kernel, and notice an answer that is not the optimum."""

import torch

from strongticket.bench import exact
from strongticket.ops.subset_sum import Status, subset_sum


def test_judges_notice_exactly_the_rows_that_were_changed() -> None:
    targets, items = (x[:40] for x in exact.draw(12))
    result = subset_sum(targets, items)
    reached = result.status == Status.OPTIMAL
    targets, items = targets[reached], items[reached]
    result = subset_sum(targets, items)
    assert exact.unlike_bisection(targets, items, result.mask) == 0
    assert exact.unlike_reference(targets, items, result) == 0
    assert exact.worse_than_peer(targets, items, result.error) == 0

    changed = result._replace(mask=result.mask.clone(), error=result.error.clone())
    changed.mask[3] ^= torch.arange(12) == 5
    changed.error[3] += 1e-3
    assert exact.unlike_bisection(targets, items, changed.mask) == 1
    assert exact.unlike_reference(targets, items, changed) == 1
    assert exact.worse_than_peer(targets, items, changed.error) == 1
