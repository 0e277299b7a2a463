"""The rules as tests try them."""

# Settings with which a few steps show what a rule does, and those that change what it finds.
RULES_TRIED = [
    "edge-popup",
    "iterand:every=4,rate=0.5",
    "biprop",
    "signed",
    "signed:threshold=0.1",
    "multicoated:levels=4",
    "bernoulli",
    "bernoulli:final=threshold,rescale=true",
    "gem-miner:every=4",
    "partially-frozen",
    "partially-frozen:frozen=0.5,scale=true",
    "relaxed:steps=12,penalty=0.001",
]
ONE_OF_EACH = list({rule.partition(":")[0]: rule for rule in reversed(RULES_TRIED)}.values())
