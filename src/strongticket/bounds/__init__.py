"""The theorems as functions: the width for an error, the error for a width, and the certificate of a pruned network.

- `theorems`: the paper's existence theorems, before anything is drawn; they hold with some probability, and for a
  constant C whose value is not known.
- `perturbation`: the lemmas they use, on how errors pass through softmax, attention and blocks.
- `adaptive`: units that are assigned after their weights are known.
- `certificate`: the error of one pruned network, from the norms of its actual errors; it holds with certainty.
"""

from strongticket.bounds.adaptive import counting_width as counting_width
from strongticket.bounds.adaptive import quota_failure as quota_failure
from strongticket.bounds.certificate import AttentionNorms as AttentionNorms
from strongticket.bounds.certificate import BlockNorms as BlockNorms
from strongticket.bounds.certificate import Envelope as Envelope
from strongticket.bounds.certificate import HeadNorms as HeadNorms
from strongticket.bounds.certificate import LinearNorms as LinearNorms
from strongticket.bounds.certificate import attention_error as attention_error
from strongticket.bounds.certificate import propagate_attention as propagate_attention
from strongticket.bounds.certificate import propagate_block as propagate_block
from strongticket.bounds.certificate import propagate_feedforward as propagate_feedforward
from strongticket.bounds.certificate import propagate_transformer as propagate_transformer
from strongticket.bounds.checks import Variant as Variant
from strongticket.bounds.perturbation import attention_drift as attention_drift
from strongticket.bounds.perturbation import block_drift as block_drift
from strongticket.bounds.perturbation import largest_attention_input_error as largest_attention_input_error
from strongticket.bounds.perturbation import largest_block_input_error as largest_block_input_error
from strongticket.bounds.perturbation import largest_score_error as largest_score_error
from strongticket.bounds.perturbation import small_softmax_error as small_softmax_error
from strongticket.bounds.perturbation import softmax_error as softmax_error
from strongticket.bounds.perturbation import softmax_shift as softmax_shift
from strongticket.bounds.theorems import attention_bound as attention_bound
from strongticket.bounds.theorems import block_bound as block_bound
from strongticket.bounds.theorems import feedforward_bound as feedforward_bound
from strongticket.bounds.theorems import linear_bound as linear_bound
from strongticket.bounds.theorems import relu_bound as relu_bound
from strongticket.bounds.theorems import transformer_bound as transformer_bound
from strongticket.bounds.widths import LEAST_CONSTANT_LINEAR as LEAST_CONSTANT_LINEAR
from strongticket.bounds.widths import LEAST_CONSTANT_RELU as LEAST_CONSTANT_RELU
from strongticket.bounds.widths import Bound as Bound
from strongticket.bounds.widths import Requirement as Requirement
from strongticket.bounds.widths import Stack as Stack
