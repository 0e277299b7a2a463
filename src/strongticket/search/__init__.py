"""Find tickets in random networks by learning a score for each weight (edge-popup)."""

from strongticket.search.edge_popup import hide as hide
from strongticket.search.hidden import Hidden as Hidden
from strongticket.search.modules import search as search
from strongticket.search.policy import Policy as Policy
