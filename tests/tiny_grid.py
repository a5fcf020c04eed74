"""A grid of seconds, for tests of the runner: two programs with two seeds each."""

from ffjax import config


def get_config():
    fields = config.default()
    fields.update(
        dataset="fashion_mini",
        num_layers=2,
        width=16,
        epochs=60,
        batch_size=50,
        train_limit=1000,
        test_limit=200,
        seeds=(42, 43),
    )
    fields.grid = {
        "tiny": (
            {"pathway": "ffcl", "goodness": "burstiness"},
            {"pathway": "standard", "goodness": "softmax_energy_margin"},
        )
    }
    return fields
