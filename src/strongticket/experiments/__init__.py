"""The paper's figures, one file each, and the code they share."""

# Every figure, in the order they are shown. Listed here so that naming them imports nothing else.
CONSTRUCTIONS = ("fig4", "fig5", "fig6", "theorem3", "scans")
# Their runs are searches on text.
TEXT_FIGURES = ("fig7", "fig8", "frontier", "signs", "longer", "inits", "spread", "ablation")
FIGURES = (*CONSTRUCTIONS, *TEXT_FIGURES)
