"""Pretrained Hugging Face models as tickets: find their matrices, prune random ones into them, put these in place."""

from strongticket.pretrained.attaching import attach as attach
from strongticket.pretrained.construct import construct_pretrained as construct_pretrained
from strongticket.pretrained.families import Family as Family
from strongticket.pretrained.families import fused_gated_mlp as fused_gated_mlp
from strongticket.pretrained.families import gated_mlp as gated_mlp
from strongticket.pretrained.families import maps as maps
from strongticket.pretrained.families import mlp as mlp
from strongticket.pretrained.families import register_family as register_family
from strongticket.pretrained.heads import Heads as Heads
from strongticket.pretrained.parts import Behind as Behind
from strongticket.pretrained.parts import Given as Given
from strongticket.pretrained.parts import LinearMap as LinearMap
from strongticket.pretrained.parts import Norm as Norm
from strongticket.pretrained.parts import ReluPair as ReluPair
