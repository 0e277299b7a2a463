"""Learn which weights of a random network to keep: policies, rules, the training loop and its run folder."""
