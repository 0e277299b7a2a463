"""The rules a search can follow. A new one is a file beside this and a line here; the first is the default."""

# Where each lies: a rule is imported when it is asked for, so that its name can be checked without torch.
RULES = {
    "edge-popup": "strongticket.learn.rules.edge_popup:EdgePopup",
}
DEFAULT_RULE = next(iter(RULES))
