"""The rules a search can follow. To add one, add a file beside this and a line here; the first is the default."""

# Where each is defined, and what it does. A rule is imported only on use, so that listing names does not need torch.
RULES = {
    "edge-popup": ("edge_popup:EdgePopup", "Keep the weights with the highest scores."),
    "iterand": ("iterand:IteRand", "The same, but redraw a share RATE of the dropped weights every EVERY steps."),
    "biprop": ("biprop:Biprop", "Keep the signs of the weights with the highest scores, times their mean magnitude."),
    "signed": ("signed:Signed", "Keep, drop or flip each weight; by rank, or by THRESHOLD on tanh of the score."),
    "multicoated": ("multicoated:Multicoated", "Add up LEVELS nested masks, each SHRINK times as dense as the last."),
    "bernoulli": ("bernoulli:Bernoulli", "Draw masks from learned probabilities; FINAL sample or threshold, RESCALE."),
    "gem-miner": ("gem_miner:GemMiner", "Round scores, pull them to 0 by L2, freeze the lowest every EVERY steps."),
    "partially-frozen": ("partially_frozen:PartiallyFrozen", "The seed fixes a share FROZEN of the weights; SCALE."),
    "relaxed": ("relaxed:Relaxed", "Soft masks that get as sharp as SHARPNESS in STEPS, with PENALTY on their sum."),
}
DEFAULT_RULE = next(iter(RULES))


def name_of_rule(asked: str) -> str:
    """Return the name in NAME or NAME:SETTING=X,...; the error for an unknown one lists all."""
    name = asked.partition(":")[0]
    if name not in RULES:
        raise ValueError(f"rule must be one of {', '.join(RULES)}; got {asked!r:.40}.")
    return name
