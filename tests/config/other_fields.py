"""Another allowed value for every field of a run."""

# The fields of a run that differ from the defaults, by the field that they are to show:
# another value, and what it needs beside it.
OTHER = {
    "trainer": {"trainer": "backprop"},
    "dataset": {"dataset": "mnist"},
    "pathway": {"pathway": "standard"},
    "goodness": {"goodness": "sos"},
    "activation": {"activation": "relu"},
    "norm_gate": {"norm_gate": True},
    "k_fraction": {"goodness": "topk", "k_fraction": 0.1},
    "alpha": {"goodness": "entmax", "alpha": 1.25},
    "p": {"goodness": "moment", "p": 4},
    "goodness_params": {
        "goodness": "softmax_energy_margin",
        "goodness_params": "margin=0.7",
    },
    "num_layers": {"num_layers": 2},
    "width": {"width": 500},
    "widths": {"widths": (300, 200)},
    "layer": {"layer": "conv"},
    "kernel": {"layer": "conv", "kernel": 5},
    "pool": {"layer": "conv", "num_layers": 2, "pool": (1, 0)},
    "epochs": {"epochs": 61},
    "batch_size": {"batch_size": 100},
    "learning_rate": {"learning_rate": 2e-3},
    "threshold": {"threshold": 1.0},
    "negatives": {"negatives": "hard"},
    "loss": {"loss": "symba"},
    "loss_scale": {"loss_scale": 2.0},
    "schedule": {"schedule": "cosine"},
    "weight_decay": {"weight_decay": 0.1},
    "peer_normalisation": {"peer_normalisation": 0.1},
    "dropout": {"dropout": 0.1},
    "label_scale": {"label_scale": 1.0},
    "normalisation": {"normalisation": "rms"},
    "ensemble": {"ensemble": "later"},
    "precision": {"precision": "bfloat16"},
    "train_limit": {"train_limit": 1000},
    "test_limit": {"test_limit": 1000},
    "valid_fraction": {"valid_fraction": 0.1},
}


def without(name):
    """The same fields but for the one that they show."""
    return {key: value for key, value in OTHER[name].items() if key != name}
