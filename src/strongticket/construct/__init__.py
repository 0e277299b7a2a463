"""Prune wide random networks into given ones, with optimal masks and a proved error."""

from strongticket.construct.attention import construct_attention as construct_attention
from strongticket.construct.feedforward import construct_feedforward as construct_feedforward
from strongticket.construct.linear import construct_linear as construct_linear
from strongticket.construct.transformer import construct_transformer as construct_transformer
