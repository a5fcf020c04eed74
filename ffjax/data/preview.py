"""A look at a dataset: its facts as text, and a contact sheet of its images.

Prints where the data came from, its sizes, classes and statistics, and draws ten
training images of each class, which shows whether they are upright and labelled right.
"""

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ffjax.data.dataset import Dataset

PER_CLASS = 10
_CELL = 64  # pixels, at least, of an image on the sheet
_GAP = 4
_FONT_SIZE = 20


def describe(dataset: Dataset) -> str:
    """Source, sizes, classes and statistics as text."""
    files = "".join(f"\n  {f}  {c}" for f, c in dataset.source["files"].items())
    kind = dataset.source["kind"]
    if "verified" in dataset.source:
        kind += f", content {'' if dataset.source['verified'] else 'not '}verified"
    train, test = (
        np.bincount(labels, minlength=dataset.num_classes)
        for labels in (dataset.train_labels, dataset.test_labels)
    )
    width = max(5, *map(len, dataset.class_names))
    rows = "".join(
        f"\n  {label:>2}  {name:{width}}  {train[label]:>8,}  {test[label]:>8,}"
        for label, name in enumerate(dataset.class_names)
    )
    return (
        f"{dataset.name}: {dataset.num_classes} classes, images of "
        f"{' x '.join(map(str, dataset.image_shape))}\n"
        f"source: {kind}; files with SHA-256:{files}\n"
        f"mean: {_numbers(dataset.mean)}   std: {_numbers(dataset.std)}   "
        "(training images / 255, per channel)\n"
        f"      {'class':{width}}  {'training':>8}  {'test':>8}{rows}\n"
        f"      {'all':{width}}  {train.sum():>8,}  {test.sum():>8,}"
    )


def draw(dataset: Dataset) -> Image.Image:
    """The contact sheet: a row for each class, with its first training images."""
    height, width, *_ = (*([1] * (len(dataset.image_shape) == 1)), *dataset.image_shape)
    scale = max(1, round(_CELL / max(height, width)))
    font = ImageFont.load_default(size=_FONT_SIZE)
    names = [f"{label}  {name}" for label, name in enumerate(dataset.class_names)]
    if all(str(label) == name for label, name in enumerate(dataset.class_names)):
        names = list(dataset.class_names)
    margin = 5 * _GAP + int(max(font.getlength(name) for name in names))
    cell = (width * scale + _GAP, max(height * scale, _FONT_SIZE) + _GAP)
    sheet = Image.new(
        "RGB", (margin + PER_CLASS * cell[0], _GAP + len(names) * cell[1]), "white"
    )
    canvas = ImageDraw.Draw(sheet)
    for label, name in enumerate(names):
        top = _GAP + label * cell[1]
        middle = top + (cell[1] - _GAP) // 2
        canvas.text((2 * _GAP, middle), name, fill="black", font=font, anchor="lm")
        rows = np.flatnonzero(dataset.train_labels == label)[:PER_CLASS]
        for column, pixels in enumerate(_pixels(dataset, dataset.train_images[rows])):
            image = Image.fromarray(pixels.reshape(height, width, *pixels.shape[2:]))
            image = image.resize(
                (width * scale, height * scale), Image.Resampling.NEAREST
            )
            sheet.paste(image, (margin + column * cell[0], top))
    return sheet


def _pixels(dataset: Dataset, images: np.ndarray) -> np.ndarray:
    """The normalised images as 0..255 again, in their shape."""
    values = images.reshape(-1, len(dataset.mean)) * dataset.std + dataset.mean
    low, high = values.min(), values.max()
    # A user's own images may have a range of their own, such as 0 to 1 in place of 255.
    if low < high and not (low > -0.01 and 0.1 < high < 1.01):
        values = (values - low) / (high - low)
    pixels = np.clip(np.round(values * 255), 0, 255).astype(np.uint8)
    return pixels.reshape(-1, *dataset.image_shape)


def _numbers(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)
