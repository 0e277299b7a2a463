"""Strong lottery tickets: a seed and a bit per weight, no weight is trained."""

from typing import TYPE_CHECKING

from strongticket._version import __version__ as __version__
from strongticket.errors import InfeasibleError as InfeasibleError
from strongticket.errors import StrongTicketError as StrongTicketError
from strongticket.errors import TicketFormatError as TicketFormatError
from strongticket.lazy import lazy_names as _lazy_names

# The function takes the package's name; the modules in it are still found: from strongticket.search.run import run.
# It cannot be lazy: whichever of those modules came first would bring the package back under the name.
from strongticket.search import search as search

# Twice the same: what type checkers and editors read, and what Python imports once a name is used.
if TYPE_CHECKING:
    from strongticket.construct import construct_attention as construct_attention
    from strongticket.construct import construct_feedforward as construct_feedforward
    from strongticket.construct import construct_linear as construct_linear
    from strongticket.construct import construct_transformer as construct_transformer
    from strongticket.mask import BlockMask as BlockMask
    from strongticket.mask import FullMask as FullMask
    from strongticket.mask import PackedMask as PackedMask
    from strongticket.ops.subset_sum import Status as Status
    from strongticket.ops.subset_sum import SubsetSumResult as SubsetSumResult
    from strongticket.ops.subset_sum import subset_sum as subset_sum
    from strongticket.ops.subset_sum import subset_sum_products as subset_sum_products
    from strongticket.pretrained import attach as attach
    from strongticket.pretrained import construct_pretrained as construct_pretrained
    from strongticket.restore import load_ticket as load_ticket
    from strongticket.rng import random_weights as random_weights
    from strongticket.search import Hidden as Hidden
    from strongticket.search import Policy as Policy
    from strongticket.search import hide as hide
    from strongticket.ticket import Certificate as Certificate
    from strongticket.ticket import DenseTensor as DenseTensor
    from strongticket.ticket import RandomTensor as RandomTensor
    from strongticket.ticket import Ticket as Ticket
    from strongticket.ticket import Verification as Verification
else:
    _HOMES = {
        "construct": "construct_attention construct_feedforward construct_linear construct_transformer",
        "mask": "BlockMask FullMask PackedMask",
        "ops.subset_sum": "Status SubsetSumResult subset_sum subset_sum_products",
        "pretrained": "attach construct_pretrained",
        "restore": "load_ticket",
        "rng": "random_weights",
        "search": "Hidden Policy hide",
        "ticket": "Certificate DenseTensor RandomTensor Ticket Verification",
    }
    __getattr__, __dir__ = _lazy_names(__name__, _HOMES)
    __all__ = [
        *("InfeasibleError", "StrongTicketError", "TicketFormatError", "search"),
        *" ".join(_HOMES.values()).split(),
    ]
