"""The settings of `strongticket bench`; without torch, which only the measurements need."""

from dataclasses import dataclass

from strongticket.checks import check_density
from strongticket.learn.config import StepConfig
from strongticket.learn.rules import DEFAULT_RULE, RULES, name_of_rule
from strongticket.models.gpt2_sizes import gpt2_config
from strongticket.parallel import available_cores
from strongticket.settings import setting

ITEMS = range(2, 33)  # beyond 32 the optimum is unknown
PUBLISHED_WEIGHTS = 784 * 500 + 500 * 10  # of the network of Pensia et al.

_THREADS, _SEED = "CPU threads for every engine.", "Seed of the random problems."
_DEVICE = "Where our engine runs: cpu or cuda."


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsetSumSettings:
    """Subset sums against other solvers."""

    peers: tuple[str, ...] = setting(
        ("gurobi", "highs", "cp-sat"), "Solvers to compare with: gurobi, highs, cp-sat, separated by commas, or none."
    )
    device: str = setting("cpu", _DEVICE, metavar="DEVICE")
    items: tuple[int, ...] = setting((8, 12, 16, 20, 24), "Numbers of items per sum, 2 to 32, separated by commas.")
    rows: int | None = setting(None, "Largest number of problems per engine.", least=1, shown="by items and device")
    threads: int = setting(1, _THREADS, least=1)
    budget: float = setting(20.0, "Seconds per peer and number of items; also the limit of one problem.", least=0.1)
    repeats: int = setting(7, "Timed runs per batched engine.", least=1)
    seed: int = setting(0, _SEED, least=0)

    def __post_init__(self) -> None:
        if not all(n in ITEMS for n in self.items):
            raise ValueError(
                f"items must lie between {ITEMS[0]} and {ITEMS[-1]}, where the optimum can be known; "
                f"got {','.join(map(str, self.items))}."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PensiaSettings:
    """The work of Pensia et al., 2020, experiment 1."""

    threads: int = setting(1, _THREADS, least=1)
    device: str = setting("cpu", _DEVICE, metavar="DEVICE")
    weights: int = setting(PUBLISHED_WEIGHTS, "Number of weights; fewer for a quick look.", least=1)
    repeats: int = setting(5, "Timed runs.", least=1)
    seed: int = setting(0, _SEED, least=0)


SEARCH = "search"  # the default rule's steps, in rows
TRAINED = "trained"  # beside the rules: all weights trained
# Layer widths, from the 64 pixels of an image to ten digits; the convolutional network has its own.
NETWORKS: dict[str, tuple[int, ...]] = {"300-100": (64, 300, 100, 10), "48-24": (64, 48, 24, 10), "conv": ()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesSettings:
    """Rules on digits."""

    networks: tuple[str, ...] = setting(
        tuple(NETWORKS), f"Networks: some of {', '.join(NETWORKS)}, separated by commas."
    )
    rules: tuple[str, ...] = setting((), "Rules, separated by commas.", shown="all")
    densities: tuple[float, ...] = setting((0.05, 0.1, 0.3, 0.5, 0.7, 0.9), "Densities, separated by commas.")
    seeds: int = setting(5, "Runs per rule and density.", least=1)
    steps: int = setting(600, "Steps per run, of 64 images each.", least=1)
    jobs: int = setting(1, "Parallel runs, each on one core.", least=1)

    def __post_init__(self) -> None:
        if unknown := [name for name in self.networks if name not in NETWORKS]:
            raise ValueError(f"networks must be among {', '.join(NETWORKS)}; got {unknown[0]!r:.40}.")
        for rule in self.rules:
            name_of_rule(rule)
        for density in self.densities:
            check_density(density)

    @property
    def chosen_rules(self) -> tuple[str, ...]:
        """The rules to try."""
        return self.rules or tuple(RULES)


# How a network is run: from planes of bits and signs, from masks with redrawn signs, and torch's ways.
ENGINES = ("bits", "mask", "float32", "bfloat16", "int8", "compiled")
OWN_ENGINES = ENGINES[:2]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeSettings:
    """GPT-2 from bits beside torch's ways to run it."""

    models: tuple[str, ...] = setting(("mini", "small", "medium"), "Sizes of GPT-2, separated by commas.")
    engines: tuple[str, ...] = setting(ENGINES, f"Engines: some of {', '.join(ENGINES)}, separated by commas.")
    device: str = setting("cpu", "Where to run: cpu or cuda.", metavar="DEVICE")
    threads: tuple[int, ...] = setting((), "Numbers of CPU threads, separated by commas.", shown="1, and one per core")
    prompt: int = setting(256, "Tokens of the prompt, whose first answer is timed.", least=1)
    context: int = setting(32, "Tokens before the timed ones.", least=1)
    tokens: int = setting(8, "Tokens per turn.", least=1)
    repeats: int = setting(9, "Timed turns per engine.", least=1)

    def __post_init__(self) -> None:
        if unknown := [name for name in self.engines if name not in ENGINES]:
            raise ValueError(f"engines must be among {', '.join(ENGINES)}; got {unknown[0]!r:.40}.")
        if min(self.threads, default=1) < 1:
            raise ValueError(f"threads must be at least 1; got {min(self.threads)}.")
        timed = self.context + self.tokens * (self.repeats + 1)
        for size in self.models:
            if max(self.prompt, timed) > (sees := gpt2_config(size).context):
                raise ValueError(f"{size} has a context of {sees} tokens; got {max(self.prompt, timed)}.")

    @property
    def chosen_threads(self) -> tuple[int, ...]:
        """The numbers of threads to try; a GPU needs one."""
        if self.device != "cpu":
            return (1,)
        return self.threads or tuple(dict.fromkeys((1, available_cores())))


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """Steps of a search beside steps of training.

    On a GPU, as in the documentation; on a CPU, just enough to see the command work.
    """

    models: tuple[str, ...] = setting(
        (), "Sizes of GPT-2, separated by commas.", shown="mini,small on cuda, nano on cpu"
    )
    device: str = setting("cpu", _DEVICE, metavar="DEVICE")
    rules: tuple[str, ...] = setting((DEFAULT_RULE,), "Rules, separated by commas, or all.")
    repeats: int = setting(7, "Timed turns per kind of step.", least=1)

    def __post_init__(self) -> None:
        for size in self.models:
            gpt2_config(size)
        for rule in () if self.rules == ("all",) else self.rules:
            name_of_rule(rule)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Steps to time: dense ones, those of each rule, and those of all of GPT-2."""
        rules = tuple(RULES) if self.rules == ("all",) else self.rules
        return ("dense", *(SEARCH if rule == DEFAULT_RULE else rule for rule in rules), "gpt2")

    @property
    def on_gpu(self) -> bool:
        """Whether steps run on a GPU."""
        return self.device.startswith("cuda")

    @property
    def sizes(self) -> tuple[str, ...]:
        """The models to measure."""
        return self.models or (("mini", "small") if self.on_gpu else ("nano",))

    @property
    def step(self) -> StepConfig:
        """How a step is computed."""
        return StepConfig(precision="bfloat16", compiler="inductor") if self.on_gpu else StepConfig()

    @property
    def batch(self) -> tuple[int, int, int]:
        """Micro-batches per step, sequences per micro-batch, tokens per sequence."""
        return (4, 32, 1024) if self.on_gpu else (2, 4, 64)
