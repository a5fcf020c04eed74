"""Matrix products in a chosen precision; sums are always float32.

float32         true float32 on every device, as the paper's framework has it
tensorfloat32   operands rounded to 10 bits of mantissa by a GPU's tensor cores
bfloat16        operands rounded to 7 bits of mantissa, twice as fast on a new CPU
"""

import functools
from typing import Literal

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint

Precision = Literal["float32", "tensorfloat32", "bfloat16"]

# What a GPU may make of float32 operands; a CPU has no choice. Operands that are
# bfloat16 already leave none.
_ALGORITHMS = {
    "float32": jax.lax.Precision.HIGHEST,
    "tensorfloat32": jax.lax.DotAlgorithmPreset.TF32_TF32_F32,
    "bfloat16": None,
}


def storage_type(precision: str) -> jnp.dtype:
    """The type in which inputs of layers are kept: that of the operands."""
    return jnp.dtype(jnp.bfloat16 if precision == "bfloat16" else jnp.float32)


def multiply(x: jax.Array, y: jax.Array, precision: str = "float32") -> jax.Array:
    """x @ y in float32 from operands of the given precision: (..., n) x (n, m)."""
    if precision == "bfloat16":
        x, y = x.astype(jnp.bfloat16), y.astype(jnp.bfloat16)
    return jnp.matmul(
        x,
        y,
        precision=_ALGORITHMS[precision],
        preferred_element_type=jnp.promote_types(x.dtype, jnp.float32),
    )


def pack(x: jax.Array) -> jax.Array:
    """As inputs of layers are kept: of bfloat16, the bits.

    XLA moves no bfloat16 on a CPU: it would convert the whole array to float32 first,
    which is slow and three times its memory; and bits of a whole array are a copy.
    """
    if x.dtype != jnp.bfloat16:
        return x
    return jax.lax.bitcast_convert_type(x, jnp.uint16)


def unpack(x: jax.Array) -> jax.Array:
    """The numbers of what ``pack`` made."""
    if x.dtype != jnp.uint16:
        return x
    return jax.lax.bitcast_convert_type(x, jnp.bfloat16)


def gather(table: jax.Array, *index: jax.Array) -> jax.Array:
    """``table[index]`` of inputs, packed or not, as numbers."""
    return unpack(pack(table)[index])


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def dense(x: jax.Array, kernel: jax.Array, precision: str) -> jax.Array:
    """x @ kernel, with a gradient that is as fast as the product itself on a CPU.

    For x' g XLA's product reads x against the grain, which costs a fifth of its speed
    on a CPU, and for bfloat16 XLA even multiplies in float32 then. A transposed copy
    costs a fiftieth; XLA is kept from undoing it. The windows of a convolution are
    wider than what is made of them: there g is copied, and (g' x)' is the gradient. A
    GPU's products read either way.
    """
    return multiply(x, kernel, precision)


def _dense_forward(x, kernel, precision):
    return multiply(x, kernel, precision), (x, kernel)


def _dense_backward(precision, saved, g):
    x, kernel = saved
    down = multiply(g, kernel.T, precision).astype(x.dtype)
    rows, slopes = x.reshape(-1, x.shape[-1]), g.reshape(-1, g.shape[-1])
    along = functools.partial(_multiply_along, precision=precision)
    if rows.shape[-1] <= 2 * slopes.shape[-1]:
        return down, along(rows, slopes)
    up = jax.lax.platform_dependent(
        rows,
        slopes,
        # Behind a barrier, or XLA would make it the slow product again.
        cpu=lambda x, g: jax.lax.optimization_barrier(along(g, x)).T,
        default=along,
    )
    return down, up


def _multiply_along(x: jax.Array, y: jax.Array, precision: str) -> jax.Array:
    """x' y of (n, a) and (n, b), with a transposed copy of x on a CPU."""
    if precision == "bfloat16":
        x = x.astype(jnp.bfloat16)
    columns = jax.lax.platform_dependent(
        x.T, cpu=_copy_transposed, default=lambda columns: columns
    )
    return multiply(columns, y, precision)


def _copy_transposed(columns: jax.Array) -> jax.Array:
    if columns.dtype == jnp.bfloat16:
        # Behind a barrier, too, XLA would take it for an operand that it can only
        # multiply in float32.
        return with_layout_constraint(columns, Layout((0, 1)))
    return jax.lax.optimization_barrier(columns)


dense.defvjp(_dense_forward, _dense_backward)


@jax.custom_vjp
def take_rows(table: jax.Array, index: jax.Array) -> jax.Array:
    """Rows of a small table: (C, n) and (B,) -> (B, n), always in float32.

    On a CPU that is a product with one-hot rows. A GPU looks the rows up wherever they
    are used, which needs no kernel of its own. The gradient is a product on both: that
    of a lookup is a scatter, serial on a CPU and in random order on a GPU.
    """
    return jax.lax.platform_dependent(
        table, index, cpu=multiply_rows, default=lambda table, index: table[index]
    )


def multiply_rows(table: jax.Array, index: jax.Array) -> jax.Array:
    """``take_rows`` by a product on every platform."""
    return multiply(jax.nn.one_hot(index, table.shape[0]), table)


def _take_rows_forward(table, index):
    return take_rows(table, index), (table, index)


def _take_rows_backward(saved, g):
    table, index = saved
    rows_of = functools.partial(multiply_rows, index=index)
    return *jax.linear_transpose(rows_of, table)(g), None


take_rows.defvjp(_take_rows_forward, _take_rows_backward)
