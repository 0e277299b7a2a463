"""Find tickets in random networks by learning a score for each weight (edge-popup)."""

from typing import TYPE_CHECKING

from strongticket.lazy import lazy_names as _lazy_names
from strongticket.search.modules import search as search

# As in the package above.
if TYPE_CHECKING:
    from strongticket.search.edge_popup import hide as hide
    from strongticket.search.hidden import Hidden as Hidden
    from strongticket.search.policy import Policy as Policy
else:
    __getattr__, __dir__ = _lazy_names(__name__, {"edge_popup": "hide", "hidden": "Hidden", "policy": "Policy"})
