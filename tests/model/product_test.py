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
    x, kernel = rng.normal(size=shape), rng.normal(size=(5, 4))
    weight = rng.normal(size=(*shape[:-1], 4))

    def gradients(multiply):
        def loss(x, kernel):
            return jnp.sum(weight * jnp.sin(multiply(x, kernel)))

        return jax.grad(loss, argnums=(0, 1))(jnp.asarray(x), jnp.asarray(kernel))

    found = gradients(lambda x, kernel: product.dense(x, kernel, "float32"))
    chex.assert_trees_all_close(found, gradients(jnp.matmul), rtol=1e-4, atol=1e-5)


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
    down, own = jax.grad(
        lambda x, kernel: jnp.sum(product.dense(x, kernel, "bfloat16")), argnums=(0, 1)
    )(x, kernel)
    assert (down.dtype, own.dtype) == (x.dtype, kernel.dtype)


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
        return jnp.sum(jnp.sin(product.dense(x, kernel, "bfloat16")))

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
