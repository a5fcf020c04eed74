"""How methods, networks, numbers and times are printed, everywhere."""

from ffjax.config import goodness_params
from ffjax.config.spec import PARAM_FIELDS, RunSpec
from ffjax.errors import UserError

# A name that is not here is printed as it is.
LABELS = {
    "sos": "SoS",
    "variance": "variance",
    "neg_entropy": "negative entropy",
    "softmax_energy_margin": "softmax-energy-margin",
    "game_theoretic": "game-theoretic",
    "game_theoretic_shah": "game-theoretic (Shah)",
    "topk": "top-k",
    "contrast_topk": "contrast top-k",
    "ln_topk": "LN-top-k",
    "entmax": "entmax",
    "burstiness": "burstiness",
    "ln_burstiness": "LN-burstiness",
    "moment": "moment",
    "mean": "mean",
    "sparse_l1": "sparse L1",
    "huber_norm": "Huber norm",
    "oja": "Oja",
    "outlier_trimmed": "outlier-trimmed",
    "attention_weighted": "attention-weighted",
    "fractal_dimension": "fractal dimension",
    "decorrelation": "decorrelation",
    "softmax_energy_margin_shah": "softmax-energy-margin (Shah)",
    "info_nce": "InfoNCE",
    "triplet_margin": "triplet margin",
    "bcm": "BCM",
    "predictive_coding": "predictive coding",
    "standard": "standard",
    "ffcl": "FFCL",
    "groups": "groups",
    "relu": "ReLU",
    "gelu": "GELU",
    "swish": "Swish",
    "ln_gelu": "LN-GELU",
    "ln_swish": "LN-Swish",
    "backprop": "backprop",
    "cross_entropy": "cross-entropy",
    "best": "best",
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "fashion_mini": "Fashion-MNIST (embedded part)",
    "cifar10": "CIFAR-10",
    "usps": "USPS",
    "svhn": "SVHN",
    "emnist_letters": "EMNIST Letters",
}


def label(name: str) -> str:
    """How a goodness function, activation, pathway or dataset is printed.

    Of a user's own module:function the function alone.
    """
    module, _, function = name.rpartition(":")
    own = function if module and function.isidentifier() else name
    return LABELS.get(name, own)


def parameters(spec: RunSpec) -> dict[str, float]:
    """The parameters of the goodness function that a run sets, by field or name."""
    given = {field: getattr(spec, field) for field in PARAM_FIELDS.values()}
    try:
        own = goodness_params.parse(spec.goodness_params)
    except UserError:  # a record that was changed by hand
        own = {}
    return {**{k: v for k, v in given.items() if v is not None}, **own}


def parameter_text(spec: RunSpec) -> str:
    """The parameters as text: "k = 2 %", "alpha = 1.5", "p = 6" or ""."""
    return ", ".join(parameter(*item) for item in parameters(spec).items())


def parameter(name: str, value: float) -> str:
    """A parameter with its value: "k = 2 %", "p = 6"."""
    if name == "k_fraction":
        return f"k = {100 * value:g} %"
    return f"{name} = {value:g}"


def goodness(spec: RunSpec) -> str:
    """The goodness function with its parameters: "moment p = 6"."""
    return " ".join(filter(None, (label(spec.goodness), parameter_text(spec))))


def method(spec: RunSpec) -> str:
    """Pathway, goodness, activation and gate: "FFCL, moment p = 6, GELU"."""
    if spec.trainer == "backprop":
        parts = ["backpropagation"]
    else:
        parts = [label(spec.pathway), goodness(spec)]
    return ", ".join([*parts, activation(spec)])


def activation(spec: RunSpec) -> str:
    """The activation with the gate: "GELU, norm gate"."""
    return label(spec.activation) + (", norm gate" if spec.norm_gate else "")


def phrase(*parts: str) -> str:
    """Names in a sentence: "FFCL burstiness GELU"."""
    return " ".join(label(part) for part in parts if part)


def setting(name: str, value: object) -> str:
    """A field of a run with its value: "learning rate 0.001"."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return f"{name.replace('_', ' ')} {text}"


def short_method(spec: RunSpec) -> str:
    """The same as config values, for a line of progress: "ffcl moment p=6 gelu"."""
    parameter = parameter_text(spec).replace(" ", "")
    parts = [spec.pathway, spec.goodness, parameter, spec.activation]
    return " ".join(filter(None, [*parts, "gate" if spec.norm_gate else ""]))


def count(number: int, noun: str) -> str:
    """A number with its noun: 1 run, 2 runs."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def duration(seconds: float) -> str:
    """Seconds as a person writes them: 42 s, 3 min 10 s, 2 h 5 min."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"


def amount(seconds: float, prefix: str = "") -> str:
    """A rough time in a single unit: 2.5 hours, 40 minutes, 3 GPU-seconds."""
    size, unit = next(
        (size, unit)
        for size, unit in ((3600, "hours"), (60, "minutes"), (1, "seconds"))
        if seconds >= 1.5 * size or size == 1
    )
    value = seconds / size
    text = f"{value:.1f}" if value < 10 else f"{value:.0f}"
    return f"{text} {prefix}{unit}"


def shortened(text: str, length: int = 200) -> str:
    """A text that fits a line or two."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def accuracy(percent: float | None) -> str:
    """An accuracy with its unit: 89.04 %; a dash for none."""
    return "-" if percent is None else f"{percent:.2f} %"
