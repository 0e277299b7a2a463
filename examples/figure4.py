"""Figure 4 of the paper in ten lines: the wider a random attention, the closer a pruning of it comes to a given one.

python examples/figure4.py
"""

import torch

import strongticket as st

torch.manual_seed(0)
target = torch.nn.MultiheadAttention(2, num_heads=1, bias=False, dtype=torch.float64)
x = torch.nn.functional.normalize(torch.randn(1000, 5, 2, dtype=torch.float64), dim=-1)  # 1000 inputs of 5 tokens
expected = target(*(x.transpose(0, 1),) * 3, need_weights=False)[0].transpose(0, 1)

print("width   median error   median certificate")
for width in (8, 16, 24, 32, 40, 48):
    source = {"key_width": width, "value_width": width, "assignment": "equal"}  # equal blocks, as the paper has them
    tickets = [st.construct_attention(target, seed=seed, **source) for seed in range(20)]
    errors = [(t.build("merged", dtype=torch.float64)(x) - expected).norm(dim=-1).max() for t in tickets]
    certified = torch.tensor([t.certificate.error for t in tickets])
    print(f"{width:5}   {torch.stack(errors).median():12.2e}   {certified.median():18.2e}")
