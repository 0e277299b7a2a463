"""Strong lottery tickets: a seed and about one bit per weight; no weight is trained."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

from strongticket._version import __version__ as __version__
from strongticket.errors import InfeasibleError as InfeasibleError
from strongticket.errors import StrongTicketError as StrongTicketError
from strongticket.errors import TicketFormatError as TicketFormatError

# The names appear twice: for type checkers and editors, and for Python, which imports a name only at first use so that
# `strongticket -h` does not wait for torch.
if TYPE_CHECKING:
    from strongticket.construct import construct_attention as construct_attention
    from strongticket.construct import construct_feedforward as construct_feedforward
    from strongticket.construct import construct_linear as construct_linear
    from strongticket.construct import construct_transformer as construct_transformer
    from strongticket.construct.samples import SampleCertificate as SampleCertificate
    from strongticket.construct.width_for import width_for as width_for
    from strongticket.learn.hidden import Hidden as Hidden
    from strongticket.learn.hide import hide as hide
    from strongticket.learn.modules import search as search
    from strongticket.learn.policy import Policy as Policy
    from strongticket.learn.rules.rule import Rule as Rule
    from strongticket.models.attention import Attention as Attention
    from strongticket.models.transformer import Block as Block
    from strongticket.models.transformer import FeedForward as FeedForward
    from strongticket.models.transformer import Transformer as Transformer
    from strongticket.ops.rng import random_weights as random_weights
    from strongticket.ops.subset_sum import Status as Status
    from strongticket.ops.subset_sum import SubsetSumResult as SubsetSumResult
    from strongticket.ops.subset_sum import subset_sum as subset_sum
    from strongticket.ops.subset_sum import subset_sum_products as subset_sum_products
    from strongticket.pretrained import attach as attach
    from strongticket.pretrained import construct_pretrained as construct_pretrained
    from strongticket.pretrained.certify import certify as certify
    from strongticket.pretrained.from_folder import load_pretrained as load_pretrained
    from strongticket.pretrained.verify import verify as verify
    from strongticket.tickets.codes import CodeMask as CodeMask
    from strongticket.tickets.codes import Frozen as Frozen
    from strongticket.tickets.codes import coded_mask as coded_mask
    from strongticket.tickets.mask import BlockMask as BlockMask
    from strongticket.tickets.mask import FullMask as FullMask
    from strongticket.tickets.mask import PackedMask as PackedMask
    from strongticket.tickets.owners import OwnerMask as OwnerMask
    from strongticket.tickets.owners import owner_mask as owner_mask
    from strongticket.tickets.restore import load_ticket as load_ticket
    from strongticket.tickets.tensors import Certificate as Certificate
    from strongticket.tickets.tensors import DenseTensor as DenseTensor
    from strongticket.tickets.tensors import RandomTensor as RandomTensor
    from strongticket.tickets.ticket import Ticket as Ticket
    from strongticket.tickets.ticket import Verification as Verification
else:
    _NAMES = {
        "construct": "construct_attention construct_feedforward construct_linear construct_transformer",
        "construct.samples": "SampleCertificate",
        "construct.width_for": "width_for",
        "learn.hide": "hide",
        "learn.hidden": "Hidden",
        "learn.modules": "search",
        "learn.policy": "Policy",
        "learn.rules.rule": "Rule",
        "models.attention": "Attention",
        "models.transformer": "Block FeedForward Transformer",
        "ops.rng": "random_weights",
        "ops.subset_sum": "Status SubsetSumResult subset_sum subset_sum_products",
        "pretrained": "attach construct_pretrained",
        "pretrained.certify": "certify",
        "pretrained.from_folder": "load_pretrained",
        "pretrained.verify": "verify",
        "tickets.codes": "CodeMask Frozen coded_mask",
        "tickets.mask": "BlockMask FullMask PackedMask",
        "tickets.owners": "OwnerMask owner_mask",
        "tickets.restore": "load_ticket",
        "tickets.tensors": "Certificate DenseTensor RandomTensor",
        "tickets.ticket": "Ticket Verification",
    }
    _HOME_OF = {name: home for home, names in _NAMES.items() for name in names.split()}
    __all__ = ["InfeasibleError", "StrongTicketError", "TicketFormatError", *_HOME_OF]

    def __getattr__(name):
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # Python calls this only for missing names, so later uses cost nothing.
        globals()[name] = value = getattr(_import_module(f"{__name__}.{_HOME_OF[name]}"), name)
        return value

    def __dir__():
        return sorted([*__all__, "__version__"])
