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
        x, y = to_bfloat16(x), to_bfloat16(y)
    return jnp.matmul(
        x,
        y,
        precision=_ALGORITHMS[precision],
        preferred_element_type=jnp.promote_types(x.dtype, jnp.float32),
    )


@jax.custom_jvp
def to_bfloat16(x: jax.Array) -> jax.Array:
    """Numbers rounded to the nearest bfloat16, halves to even.

    XLA's own conversion takes more than twice as long on a CPU, because it looks for
    NaN. Here the NaN that operations make stays one; others, with bits set in their
    lower half, may become an infinity or a zero.
    """
    if x.dtype != jnp.float32:
        return x.astype(jnp.bfloat16)
    return jax.lax.platform_dependent(
        x, cpu=_round_bits, default=lambda x: x.astype(jnp.bfloat16)
    )


@to_bfloat16.defjvp
def _to_bfloat16_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    return to_bfloat16(x), dx.astype(jnp.bfloat16)


def _round_bits(x: jax.Array) -> jax.Array:
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
    last = (bits >> 16) & 1  # of the bits that stay; a half goes up where it is 1
    upper = ((bits + 0x7FFF + last) >> 16).astype(jnp.uint16)
    return jax.lax.bitcast_convert_type(upper, jnp.bfloat16)


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
    """``table[index]`` of inputs, packed or not, as numbers.

    No index may be out of bounds or negative: that is not looked after.
    """
    return unpack(_look_up(pack(table), *index))


def _look_up(table: jax.Array, *index: jax.Array) -> jax.Array:
    return jnp.asarray(table).at[index].get(mode="promise_in_bounds")


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def dense(
    x: jax.Array, kernel: jax.Array, bias: jax.Array, precision: str
) -> jax.Array:
    """x @ kernel + bias, with a gradient as fast as the product itself on a CPU.

    For x' g XLA's product reads x against the grain, which costs a fifth of its speed
    on a CPU, and for bfloat16 XLA even multiplies in float32 then. A transposed copy
    costs a fiftieth; XLA is kept from undoing it. The windows of a convolution are
    wider than what is made of them: there g is copied, and (g' x)' is the gradient. A
    GPU's products read either way.
    """
    # Leading axes of length 1, because tests forbid silent rank promotion.
    row = bias.reshape((1,) * (x.ndim - 1) + bias.shape)
    return multiply(x, kernel, precision) + row


def _dense_forward(x, kernel, bias, precision):
    return dense(x, kernel, bias, precision), (x, kernel)


def _dense_backward(precision, saved, g):
    x, kernel = saved
    down = multiply(g, kernel.T, precision).astype(x.dtype)
    rows, slopes = x.reshape(-1, x.shape[-1]), g.reshape(-1, g.shape[-1])
    up = jax.lax.platform_dependent(
        rows,
        slopes,
        cpu=functools.partial(_gradient_on_cpu, precision=precision),
        default=lambda x, g: (multiply(x.T, g, precision), jnp.sum(g, axis=0)),
    )
    return down, *up


def _gradient_on_cpu(
    x: jax.Array, g: jax.Array, precision: str
) -> tuple[jax.Array, jax.Array]:
    """x' g and the sum of the rows of g, of (n, a) and (n, b)."""
    if x.shape[-1] > 2 * g.shape[-1]:
        # Behind a barrier, or XLA would make it the slow product again.
        across = jax.lax.optimization_barrier(_multiply_along(g, x, precision))
        return across.T, jnp.sum(g, axis=0)
    if precision != "bfloat16":
        return _multiply_along(x, g, precision), jnp.sum(g, axis=0)
    # The bias as the weight of an input that is always 1: so there is no use for g in
    # float32, and XLA rounds it where it is computed.
    ones = jnp.ones((len(x), 1), jnp.bfloat16)
    both = _multiply_along(jnp.concatenate([to_bfloat16(x), ones], 1), g, precision)
    return both[:-1], both[-1]


def _multiply_along(x: jax.Array, y: jax.Array, precision: str) -> jax.Array:
    """x' y of (n, a) and (n, b), with a transposed copy of x."""
    if precision == "bfloat16":
        x = to_bfloat16(x)
    return multiply(_copy_transposed(x.T), y, precision)


def _copy_transposed(columns: jax.Array) -> jax.Array:
    if columns.dtype == jnp.bfloat16:
        # Behind a barrier, too, XLA would take it for an operand that it can only
        # multiply in float32.
        return with_layout_constraint(columns, Layout((0, 1)))
    return jax.lax.optimization_barrier(columns)


dense.defvjp(_dense_forward, _dense_backward)


@jax.custom_vjp
def take_rows(
    table: jax.Array, index: jax.Array, factor: jax.Array | None = None
) -> jax.Array:
    """Rows of a small table, always in float32: (C, n) and (B,) -> (B, n).

    They are looked up wherever they are used, which needs no kernel of its own. The
    gradient is a product: that of a lookup is a scatter, serial on a CPU and in random
    order on a GPU. No index may be out of bounds or negative.

    Args:
      table: (C, n).
      index: (B,).
      factor: (B,), by which the rows are multiplied.
    """
    rows = _look_up(table, index)
    return rows if factor is None else factor[:, None] * rows


def multiply_rows(table: jax.Array, index: jax.Array) -> jax.Array:
    """``take_rows`` by a product."""
    return multiply(jax.nn.one_hot(index, table.shape[0]), table)


def _take_rows_forward(table, index, factor=None):
    return take_rows(table, index, factor), (table, index, factor)


def _take_rows_backward(saved, g):
    table, index, factor = saved
    choices = jax.nn.one_hot(index, table.shape[0])

    def back(choices, g):
        (slope,) = jax.linear_transpose(functools.partial(multiply, choices), table)(g)
        return slope

    if factor is None:
        return back(choices, g), None, None
    # A GPU has other uses for g, and so stores it: the product's small operand takes
    # the factor, (B, C), which saves it a second copy, (B, n). A CPU computes the copy
    # from what g is made of, and g itself wherever else it is used.
    slope = jax.lax.platform_dependent(
        choices,
        factor[:, None],
        g,
        cpu=lambda choices, factor, g: back(choices, factor * g),
        default=lambda choices, factor, g: back(factor * choices, g),
    )
    return slope, None, jnp.sum(g * _look_up(table, index), axis=-1)


take_rows.defvjp(_take_rows_forward, _take_rows_backward)
