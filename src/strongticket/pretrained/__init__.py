"""Pretrained Hugging Face models as tickets: find their matrices, prune random ones into them, put those in place."""

from strongticket.pretrained.adapters import Adapter as Adapter
from strongticket.pretrained.adapters import register_adapter as register_adapter
from strongticket.pretrained.attach import attach as attach
from strongticket.pretrained.construct import construct_pretrained as construct_pretrained
