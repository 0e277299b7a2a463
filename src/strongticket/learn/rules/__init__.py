"""The rules a search can follow. A new one is a file beside this and a line here; the first is the default."""

# Where each lies, and what it does. A rule is imported when it is asked for, so that its name is known without torch.
RULES = {
    "edge-popup": ("edge_popup:EdgePopup", "Keep the weights with the highest scores."),
    "iterand": ("iterand:IteRand", "The same; every EVERY steps a share RATE of the dropped weights is drawn again."),
    "biprop": ("biprop:Biprop", "Keep the signs of the weights with the highest scores, times their mean magnitude."),
    "signed": ("signed:Signed", "Keep, drop or flip each weight; by rank, or by THRESHOLD on tanh of the score."),
    "multicoated": ("multicoated:Multicoated", "LEVELS nested masks are added up, each SHRINK times as dense."),
    "bernoulli": ("bernoulli:Bernoulli", "Draw masks from learned probabilities; FINAL sample or threshold, RESCALE."),
    "gem-miner": ("gem_miner:GemMiner", "Round scores, pull them to 0 by L2, freeze the lowest every EVERY steps."),
    "partially-frozen": ("partially_frozen:PartiallyFrozen", "The seed fixes a share FROZEN of the weights; SCALE."),
    "relaxed": ("relaxed:Relaxed", "Soft masks that get as sharp as SHARPNESS in STEPS, with PENALTY on their sum."),
}
DEFAULT_RULE = next(iter(RULES))


def name_of_rule(asked: str) -> str:
    """Give the name in NAME or NAME:SETTING=X,...; one that is not known gets the list."""
    name = asked.partition(":")[0]
    if name not in RULES:
        raise ValueError(f"rule must be one of {', '.join(RULES)}; got {asked!r:.40}.")
    return name
