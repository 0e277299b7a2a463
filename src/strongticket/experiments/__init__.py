"""The paper's figures: one file each, and what they share."""

# Those whose runs are searches on text. Here, where nothing has to be imported to name them.
TEXT_FIGURES = ("fig7", "fig8", "spread", "ablation", "inits")
