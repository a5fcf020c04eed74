"""Matrix products: their gradients, and how far a precision is from float32."""

import re
from typing import get_args

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ffjax.model import product
from ffjax.training import machine


@pytest.mark.parametrize("shape", [(7, 5), (3, 7, 5), (5,)])
def test_the_gradient_of_the_product_is_that_of_a_plain_one(rng, shape):
    arrays = rng.normal(size=shape), rng.normal(size=(5, 4)), rng.normal(size=4)
    weight = rng.normal(size=(*shape[:-1], 4))

    def gradients(multiply):
        def loss(*arrays):
            return jnp.sum(weight * jnp.sin(multiply(*arrays)))

        return jax.grad(loss, argnums=(0, 1, 2))(*map(jnp.asarray, arrays))

    def plain(x, kernel, bias):
        return x @ kernel + bias.reshape((1,) * (x.ndim - 1) + bias.shape)

    found = gradients(lambda *arrays: product.dense(*arrays, "float32"))
    chex.assert_trees_all_close(found, gradients(plain), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("branch")
@pytest.mark.parametrize("has_factor", [False, True])
def test_rows_of_a_table_and_their_gradient(rng, has_factor):
    table, g = rng.normal(size=(3, 8)), rng.normal(size=(5, 8))
    index = np.array([0, 2, 2, 1, 0])
    factor = rng.normal(size=5) if has_factor else np.ones(5)
    own = (jnp.asarray(factor, jnp.float32),) if has_factor else ()
    rows, back = jax.vjp(
        lambda table, *factor: product.take_rows(table, jnp.asarray(index), *factor),
        jnp.asarray(table, jnp.float32),
        *own,
    )
    np.testing.assert_allclose(rows, factor[:, None] * table[index], rtol=1e-6)
    slopes = np.zeros((3, 8))
    np.add.at(slopes, index, factor[:, None] * g)
    expected = slopes, (g * table[index]).sum(axis=1)
    for found, one in zip(back(jnp.asarray(g, jnp.float32)), expected, strict=False):
        np.testing.assert_allclose(found, one, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("width", [3, 30])
def test_the_gradient_in_bfloat16_is_that_of_rounded_operands(rng, width):
    x = jnp.asarray(rng.normal(size=(40, width)), jnp.bfloat16)
    kernel, bias = jnp.ones((width, 8)), jnp.ones(8)
    g = jnp.asarray(rng.normal(size=(40, 8)), jnp.float32)
    _, back = jax.vjp(lambda *own: product.dense(x, *own, "bfloat16"), kernel, bias)
    rounded = np.asarray(g.astype(jnp.bfloat16), np.float64)
    expected = np.asarray(x, np.float64).T @ rounded, rounded.sum(0)
    for one, own in zip(back(g), expected, strict=True):
        np.testing.assert_allclose(one, own, rtol=1e-2, atol=1e-2)


def test_numbers_are_rounded_to_bfloat16_as_xla_rounds_them(rng):
    bits = rng.integers(0, 2**32, size=100_000, dtype=np.uint32)
    halves = (bits & 0xFFFF0000) | 0x8000  # as far from one bfloat16 as from the next
    x = np.concatenate([bits, halves]).view(np.float32)
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, 1e-45], np.float32)
    x = np.concatenate([x[np.isfinite(x)], special])
    found = jax.jit(product.to_bfloat16)(x)
    expected = jnp.asarray(x).astype(jnp.bfloat16)
    np.testing.assert_array_equal(
        np.asarray(found, np.float32), np.asarray(expected, np.float32)
    )
    slope = jax.grad(lambda x: product.to_bfloat16(x).astype(jnp.float32))(2.0)
    assert slope == 1


def test_bfloat16_rounds_the_operands_and_not_the_sum(rng):
    x = rng.normal(size=(6, 400)).astype(np.float32)
    y = rng.normal(size=(400, 5)).astype(np.float32)
    found = product.multiply(jnp.asarray(x), jnp.asarray(y), "bfloat16")
    assert found.dtype == jnp.float32
    rounded = [
        np.asarray(jnp.asarray(part, jnp.bfloat16), np.float64) for part in (x, y)
    ]
    np.testing.assert_allclose(found, rounded[0] @ rounded[1], rtol=1e-4, atol=1e-4)
    exact = x.astype(np.float64) @ y
    assert np.abs(found - exact).max() > 1e-3  # it is another number
    np.testing.assert_allclose(
        product.multiply(jnp.asarray(x), jnp.asarray(y)), exact, rtol=1e-4, atol=1e-4
    )


def test_gradients_have_the_types_of_what_they_are_for(rng):
    x = jnp.asarray(rng.normal(size=(6, 8)), jnp.bfloat16)
    kernel = jnp.asarray(rng.normal(size=(8, 3)), jnp.float32)
    down, *own = jax.grad(
        lambda *arrays: jnp.sum(product.dense(*arrays, "bfloat16")), argnums=(0, 1, 2)
    )(x, kernel, jnp.zeros(3))
    assert [one.dtype for one in (down, *own)] == [x.dtype, kernel.dtype, kernel.dtype]


@pytest.mark.parametrize("precision", get_args(product.Precision))
def test_every_precision_lowers_for_cuda_with_its_own_algorithm(precision):
    x, y = jnp.zeros((4, 8)), jnp.zeros((8, 3))
    multiply = jax.jit(lambda x, y: product.multiply(x, y, precision))
    text = multiply.trace(x, y).lower(lowering_platforms=("cuda",)).as_text()
    marks = {"float32": "HIGHEST", "tensorfloat32": "tf32", "bfloat16": "bf16"}
    assert {name for name, mark in marks.items() if mark in text} == {precision}


def test_inputs_are_kept_in_the_type_of_the_operands():
    assert product.storage_type("float32") == jnp.float32
    assert product.storage_type("tensorfloat32") == jnp.float32
    assert product.storage_type("bfloat16") == jnp.bfloat16


@pytest.mark.skipif(
    bool(machine.precision_note("bfloat16", machine.here())),
    reason="the processor has no instructions for bfloat16",
)
@pytest.mark.parametrize("leading", [(64,), (2, 32)])
def test_a_cpu_multiplies_bfloat16_for_the_gradient_as_well(leading):
    def loss(kernel, x):
        bias = jnp.zeros(kernel.shape[-1])
        return jnp.sum(jnp.sin(product.dense(x, kernel, bias, "bfloat16")))

    kernel = jnp.ones((256, 128))
    x = jnp.ones((*leading, 256), jnp.bfloat16)
    text = jax.jit(jax.grad(loss)).lower(kernel, x).compile().as_text() or ""
    operands = re.findall(r" dot\(%([\w.\-]+), %([\w.\-]+)\)", text)
    assert len(operands) == 2  # x W and x' g
    for name in (name for pair in operands for name in pair):
        assert re.search(rf"%{re.escape(name)} = bf16\[", text)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rows_are_gathered_without_a_copy_of_the_table(rng, dtype):
    table = jnp.asarray(rng.normal(size=(40, 3, 7)), dtype)
    rows, columns = jnp.asarray([[5, 0, 39]]), jnp.asarray([[2, 0, 1], [1, 1, 1]])
    gather = jax.jit(product.gather)
    packed = product.pack(table)
    np.testing.assert_array_equal(product.unpack(packed), table)
    for kept in (table, packed):
        found = gather(kept, rows, columns)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, np.asarray(table)[rows, columns])
    text = gather.lower(packed, rows, columns).compile().as_text() or ""
    arrays = re.findall(r" = (\w+)\[40,3,7\]\S* (\w+)\(", text)
    assert set(arrays) == {("f32" if dtype == "float32" else "u16", "parameter")}
