"""One Forward-Forward layer: product, activation, norm gate, and where its label is."""

import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from ffjax.model import convolve, normalise, product
from ffjax.model.maps import Shape

Activation = Callable[[jax.Array], jax.Array]


def _gelu(x: jax.Array) -> jax.Array:
    """The exact GELU, x Phi(x), with erf as PyTorch has it.

    jax.nn.gelu's default is the tanh approximation, and its exact form goes through
    erfc, which costs several times as much on a CPU.
    """
    return 0.5 * x * (1 + jax.lax.erf(x * math.sqrt(0.5)))


ACTIVATIONS: dict[str, Activation] = {
    "relu": jax.nn.relu,
    "gelu": _gelu,
    "swish": jax.nn.swish,
    "ln_gelu": lambda x: _gelu(normalise.layer_norm(x)),
    "ln_swish": lambda x: jax.nn.swish(normalise.layer_norm(x)),
}

LabelSite = Literal["none", "input", "output"]

# Of a layer's parameters, what is measured and not learned.
INPUT_MEAN = "input_mean"
INPUT_SCALE = "input_scale"  # 1 / standard deviation


def gate(h: jax.Array) -> jax.Array:
    """The norm gate sigmoid(||h||) * h over the last axis (paper, section 4.1)."""
    length = jnp.sqrt(jnp.sum(h * h, axis=-1, keepdims=True) + 1e-12)
    return jax.nn.sigmoid(length) * h


class Layer(nn.Module):
    """h = gate(activation(W x + b)), with a candidate label at one of three sites.

    - "none": the label does not enter here.
    - "input": W acts on [x ; a onehot(label)]. The amplitude a is the last entry of the
      input, and W is kept in two parts, so that W_x x is one product for all labels.
    - "output": goodness is measured on h + W_label onehot(label) (paper, eq. 7), while
      h itself stays free of the label.

    Where norm_gate is None, data say whether there is a gate, so that layers with
    and without it can share a program.

    With ``reads`` the layer is a convolution: x is a map of that shape as a row, and
    the same happens at each of its P positions, with the window around it in place of
    x. Activations (LN-GELU's mean, too), the gate and the label's shift are those of
    the channels at a position.

    With ``standardise`` the layer reads (x - m) / s, where m and s are the mean and the
    standard deviation of each channel over training examples (of each unit, if layers
    are dense). They are no weights: ``program.with_statistics`` sets them before the
    layer is trained, and they have no gradient. Beyond the edges of a map there is m.

    Weights and biases start uniform in +-1/sqrt(fan_in), W_label in +-1/sqrt(classes).
    """

    width: int
    activation: str
    norm_gate: bool | None
    label_site: LabelSite
    num_classes: int
    precision: product.Precision = "float32"
    reads: Shape | None = None
    kernel: int = 0
    standardise: bool = False

    @nn.compact
    def __call__(
        self, x: jax.Array, label: jax.Array, gate_on: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Activations under candidate labels.

        Args:
          x: inputs (..., D); (..., D + 1) if the label enters at the input.
          label: integers (...), or (K, ...): K candidates for each input. What does not
            depend on the label is computed once for all of them, and its gradient too.
          gate_on: whether there is a norm gate, if norm_gate is None.

        Returns:
          What goes on to the next layer, and what goodness is measured on: (..., W),
          with K in front where it depends on the label; (..., P, W) of a convolution.
        """
        is_alone = x.ndim == 1
        if self.standardise:
            x = self._standardised(x)
        if self.reads is not None:
            x = convolve.windows(x, self.reads, self.kernel)
        if self.label_site == "input":
            x, amplitude = x[..., :-1], x[..., -1:].astype(jnp.float32)
            fan_in = x.shape[-1] + self.num_classes
            before = self._dense(x, fan_in)  # first: its weights are drawn first
            if is_alone:
                shift = self._shift(label, fan_in, is_alone)
                before = _add(before, shift, amplitude)
            else:
                shift = self._shift(label, fan_in, is_alone, amplitude[..., 0])
                before = _add(before, shift)
        else:
            before = self._dense(x, fan_in=x.shape[-1])
        h = ACTIVATIONS[self.activation](before)
        if self.norm_gate is None and gate_on is not None:
            h = jnp.where(gate_on, gate(h), h)
        elif self.norm_gate:
            h = gate(h)
        if self.label_site == "output":
            shift = self._shift(label, self.num_classes, is_alone)
            if self.reads is not None:  # the same at every position
                shift = jnp.expand_dims(shift, -2)
            return h, _add(h, shift)
        return h, h

    def _standardised(self, x: jax.Array) -> jax.Array:
        channels = self.reads.channels if self.reads else x.shape[-1]
        mean = self.param(INPUT_MEAN, nn.initializers.zeros, (channels,))
        scale = self.param(INPUT_SCALE, nn.initializers.ones, (channels,))
        split = x.reshape(*x.shape[:-1], -1, channels).astype(jnp.float32)
        lead = (1,) * (split.ndim - 1)
        standard = (split - mean.reshape(*lead, -1)) * scale.reshape(*lead, -1)
        standard = jax.lax.stop_gradient(standard).reshape(x.shape)
        is_half = x.dtype == jnp.bfloat16
        return product.to_bfloat16(standard) if is_half else standard

    def _dense(self, x: jax.Array, fan_in: int) -> jax.Array:
        kernel = self.param("kernel", _uniform(fan_in), (x.shape[-1], self.width))
        bias = self.param("bias", _uniform(fan_in), (self.width,))
        before: Any = product.dense(x, kernel, bias, self.precision)
        return before

    def _shift(
        self,
        label: jax.Array,
        fan_in: int,
        is_alone: bool,
        amplitude: jax.Array | None = None,
    ) -> jax.Array:
        """The rows of labels (..., W), times an amplitude of each example if given."""
        shape = (self.num_classes, self.width)
        label_kernel = self.param("label_kernel", _uniform(fan_in), shape)
        # Flat, because the gradient of a product with two leading axes is transposed in
        # memory first.
        flat = label.reshape(-1)
        if is_alone:
            # It is vmapped under labels that all examples share: a product makes their
            # rows once, and a lookup would be fused into what uses them.
            rows = product.multiply_rows(label_kernel, flat)
        elif amplitude is None:
            rows = product.take_rows(label_kernel, flat)
        else:
            amplitude = jnp.broadcast_to(amplitude, label.shape)
            rows = product.take_rows(label_kernel, flat, amplitude.reshape(-1))
        return rows.reshape(*label.shape, self.width)


def _add(h: jax.Array, shift: jax.Array, factor: jax.Array | float = 1.0) -> jax.Array:
    """h + factor * shift; for each of K shifts, if they have an axis of their own.

    On a CPU they are added one by one, not by broadcasting: the gradient of h is then a
    sum of K arrays, which XLA fuses, where the gradient of a broadcast is a reduction
    over the leading axis that takes longer than all the rest of a step's element-wise
    work. A GPU computes the broadcast sum where it is used, and so never stores it.
    """
    if shift.ndim == h.ndim:
        return h + factor * shift
    if h.ndim == 1:
        # An example alone is vmapped, and a choice by platform would bring the vmapped
        # axis to the front: a transposed copy on a CPU.
        return _add_one_by_one(h, shift, factor)
    return jax.lax.platform_dependent(
        h, shift, factor, cpu=_add_one_by_one, default=_add_broadcast
    )


def _add_one_by_one(h: jax.Array, shift: jax.Array, factor: jax.Array | float):
    return jnp.stack([h + factor * one for one in shift])


def _add_broadcast(h: jax.Array, shift: jax.Array, factor: jax.Array | float):
    if jnp.ndim(factor):
        factor = jnp.expand_dims(factor, 0)
    return h[None] + factor * shift


def _uniform(fan_in: int) -> nn.initializers.Initializer:
    bound = fan_in**-0.5

    def init(key, shape, dtype=jnp.float32):
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init
