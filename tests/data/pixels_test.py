import numpy as np
import pytest

from ffjax import data


def test_statistics_are_those_of_a_channel():
    images = np.random.default_rng(0).integers(0, 256, (20, 4, 5, 3), np.uint8)
    mean, std = data.statistics(images)
    pixels = images.reshape(-1, 3) / 255
    np.testing.assert_allclose(mean, pixels.mean(0), rtol=1e-14)
    np.testing.assert_allclose(std, pixels.std(0), rtol=1e-14)
    flat = data.normalise(images, mean, std)
    assert (flat.shape, flat.dtype) == ((20, 60), np.float32)
    expected = ((pixels - mean) / std).astype(np.float32)
    np.testing.assert_array_equal(flat.reshape(-1, 3), expected)


@pytest.mark.parametrize(
    ("values", "types"),
    [
        ([0, 1], ["?", "u1", "i1", "u2", "i8", "f2", "f4", "f8", "g"]),
        ([0, 7, 255], ["u1", "i2", ">i2", "u4", "i8", "f2", "f4", ">f4", "f8", "g"]),
        ([-3, 0, 300], ["i2", "i4", ">i8", "f2", "f4", "f8"]),
        ([-2.5, 0.0, 0.25, 1000.0], ["f2", "f4", "f8", ">f8", "g"]),
    ],
)
def test_values_count_and_not_their_type(values, types):
    """Over more values than a block has, with a single channel and with three."""
    rng = np.random.default_rng(0)
    for shape in ((7, 300, 300), (7, 200, 200, 3)):
        images = rng.choice(values, shape).astype(types[0])
        mean, std = data.statistics(images)
        expected = data.normalise(images, mean, std)
        assert len(np.unique(expected)) >= len(values)
        assert len(types) > 1
        for name in types[1:]:
            same = images.astype(name)
            assert data.statistics(same) == (mean, std), name
            result = data.normalise(same, mean, std)
            assert result.tobytes() == expected.tobytes(), name
            for layout in (np.asfortranarray(same), np.repeat(same, 2, axis=1)[:, ::2]):
                assert data.statistics(layout) == (mean, std), name
                result = data.normalise(layout, mean, std)
                assert result.tobytes() == expected.tobytes(), name


def test_minus_zero_is_zero():
    images = np.array([[-1.5, 0.0], [1.5, 0.0]])
    mean, std = data.statistics(images)
    assert mean == (0.0,)
    minus = np.array([[-1.5, -0.0], [1.5, -0.0]])
    expected = data.normalise(images, mean, std)
    assert data.normalise(minus, mean, std).tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("value", [7, 0.1])
def test_a_constant_channel_becomes_zero(dtype, value):
    images = np.full((30, 4, 5, 3), value, dtype)
    images[..., 1] = np.arange(30)[:, None, None]
    mean, std = data.statistics(images)
    assert std[0] == std[2] == 1
    pixels = data.normalise(images, mean, std).reshape(-1, 3)
    np.testing.assert_allclose(pixels[:, 0], 0, atol=1e-12)
    assert pixels[:, 1].std() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30])
def test_images_of_any_scale_stay_finite(scale):
    images = np.arange(600).reshape(30, 4, 5) * scale
    flat = data.normalise(images, *data.statistics(images))
    assert np.isfinite(flat).all()
    if scale > 1e-100:
        assert flat.std() == pytest.approx(1, abs=1e-5)
