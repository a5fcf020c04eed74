"""Shows a dataset: prints its facts and draws ten training images of each class.

python -m ffjax.data [--dataset=NAME] [--data_dir=DIR] [--output=FILE.png]
"""

import io
import logging as stdlib_logging
import pathlib
import tempfile

from absl import flags, logging

from ffjax import atomic, cli, data
from ffjax.data import preview
from ffjax.errors import UserError


def define_flags(argv: list[str]) -> None:
    """The flags of this command."""
    del argv
    flags.DEFINE_string(
        "dataset",
        "fashion_mini",
        f"Which dataset: {', '.join(data.DATASETS)}, or the path of a .npz file with "
        "train_images, train_labels, test_images and test_labels.",
    )
    flags.DEFINE_string(
        "data_dir",
        "",
        "A folder that holds prepared TFDS datasets, or the official files in a "
        "subfolder named after the dataset. Empty: the usual folder of TFDS.",
    )
    flags.DEFINE_string(
        "output",
        "",
        "The contact sheet to write, a .png file. Empty: in a new temporary folder.",
    )


def main() -> int:
    """Prints the facts and writes the sheet."""
    values = flags.FLAGS
    plain = stdlib_logging.Formatter("ffjax: %(message)s")
    logging.get_absl_handler().setFormatter(plain)
    if not values["verbosity"].present:
        logging.set_verbosity(logging.WARNING)
    dataset = data.load(values.dataset, data_dir=values.data_dir)
    print(preview.describe(dataset))
    content = io.BytesIO()
    preview.draw(dataset).save(content, "PNG")
    try:
        path = pathlib.Path(values.output or tempfile.mkdtemp(prefix="ffjax-"))
        if not values.output:
            path /= f"{pathlib.Path(dataset.name).stem}.png"
        atomic.write_bytes(path, content.getvalue(), make_folder=False)
    except OSError as error:
        raise UserError(
            f"output={values.output!r}: cannot be written ({error.strerror})"
        ) from None
    print(f"{preview.PER_CLASS} training images of each class: {path}")
    return 0


if __name__ == "__main__":
    cli.run(main, define_flags)
