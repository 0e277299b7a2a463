"""The paper's figures: one file each, and what they share."""

# Every figure, in the order they are shown. Here, where nothing has to be imported to name them.
CONSTRUCTIONS = ("fig4", "fig5", "fig6")
TEXT_FIGURES = ("frontier", "fig7", "fig8", "inits", "spread", "ablation")  # their runs are searches on text
FIGURES = (*CONSTRUCTIONS, *TEXT_FIGURES)
