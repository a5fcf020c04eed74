"""What goes wrong in a user's own function is said in one line, with its place."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ffjax import goodness
from ffjax.errors import UserError
from ffjax.goodness import registry

_HEAD = """import jax
import jax.numpy as jnp
import own_helper
from ffjax.errors import UserError
from ffjax.goodness import register
@register(running=lambda h: RUNNING(h), shifted=lambda h, v, **params: SHIFTED(h, v))
def f(h, mean, *, address=0, fn=0):
"""  # parameters named like the wrapper's own arguments must get through


@pytest.fixture
def make(tmp_path, monkeypatch):
    """A goodness function with this body, which starts in line 8 of its file."""
    monkeypatch.setattr(registry, "GOODNESS", dict(registry.GOODNESS))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_helper.py").write_text("def halve(x):\n    return x / 0\n")

    def make(body, running="h.mean(-1)", shifted="h @ v.T"):
        name = f"own_{len(list(tmp_path.iterdir()))}_{tmp_path.name}"
        head = _HEAD.replace("RUNNING(h)", running).replace("SHIFTED(h, v)", shifted)
        text = head + "".join(f"    {line}\n" for line in body.splitlines())
        (tmp_path / f"{name}.py").write_text(text)
        return name, goodness.make(f"{name}:f")

    return make


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "x = 1\nreturn h.sum(-1) / (x // 0)",
            "ZeroDivisionError: .* zero {file}line 9",
        ),
        ("return h.sum(-1) + missing", "NameError: .* not defined {file}line 8"),
        ("raise KeyError", "KeyError {file}line 8"),
        (
            "return h.sum(-1) * own_helper.halve(3)",
            r"ZeroDiv.* \(own_helper.py, line 2\)",
        ),
        # Errors of jax run over several lines, and come from deep inside it.
        ("return h.sum(-1) + jnp.ones(77)", "TypeError: add got incom.* {file}line 8"),
        ("if h.sum() > 0:\n    pass\nreturn h.sum(-1)", "Tracer.* {file}line 8"),
        (
            "@jax.jit\ndef g(h):\n    return h.sun()\nreturn g(h)",
            "Attr.* {file}line 10",
        ),
    ],
)
def test_errors_have_their_place(make, body, message):
    name, g = make(body)
    expected = rf"^goodness='{name}:f': " + message.replace("{file}", rf"\({name}.py, ")
    with pytest.raises(UserError, match=expected) as caught:
        jax.jit(g)(jnp.ones((4, 3)))
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is not None


def test_errors_in_the_other_functions_have_their_place(make):
    name, g = make("return h.sum(-1)", running="h.men(-1)", shifted="h @ u.T")
    with pytest.raises(UserError, match=rf"attribute '?men'? \({name}.py, line 6\)"):
        g.update((), jnp.ones((4, 3)), True)
    assert g.shifted is not None
    with pytest.raises(UserError, match=rf"'u' is not defined \({name}.py, line 6\)"):
        g.shifted(jnp.ones((4, 3)), jnp.ones((2, 3)))


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("raise KeyboardInterrupt", KeyboardInterrupt),
        ("raise MemoryError('host')", MemoryError),
        ("raise jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: 9 GB')", RuntimeError),
    ],
)
def test_what_is_not_the_functions_fault_passes_through(make, body, kind):
    _, g = make(body)
    with pytest.raises(kind):
        g(jnp.ones((4, 3)))


def test_a_user_error_is_left_as_it_is(make):
    _, g = make("raise UserError('q=3: must be 4')")
    with pytest.raises(UserError, match=r"^q=3: must be 4$"):
        g(jnp.ones((4, 3)))


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("None", "None"),
        ("(h.sum(-1), h)", "a value of type 'tuple'"),
        ("1.5", "a value of type 'float'"),
        ("h.sum(-1) + 1j", "complex64 numbers"),
        ("jnp.sum(h > 0, axis=-1)", "int32 numbers"),
        ("h", r"shape \(4, 3\)"),
        ("h.sum()", r"shape \(\)"),
    ],
)
def test_a_result_that_is_no_goodness(make, value, what):
    name, g = make(f"return {value}")
    shapes = r"activations of shape \(4, 3\); .* floats of shape \(4,\)"
    with pytest.raises(UserError, match=f"'{name}:f': gives {what} for {shapes}"):
        jax.jit(g)(jnp.ones((4, 3)))


@pytest.mark.parametrize(
    ("running", "what"),
    [("h.mean()", r"shape \(\)"), ("1.5", "a value of type 'float'")],
)
def test_a_running_mean_needs_something_of_each_example(make, running, what):
    name, g = make("return h.sum(-1)", running=running)
    shapes = r"activations of shape \(2, 3\); .* each example, \(2,\) or \(2, 3\)"
    with pytest.raises(
        UserError, match=f"'{name}:f': running gives {what} for {shapes}"
    ):
        g.init(3)


def test_shifted_results_are_checked_and_passed_on(make, rng):
    _, g = make("return h.sum(-1)", shifted="h @ v")
    assert g.shifted is not None
    with pytest.raises(UserError, match=r"gives shape \(4, 3\).* shape \(4, 2\)"):
        g.shifted(jnp.ones((4, 2)), jnp.ones((2, 3)))
    _, g = make("return h.sum(-1)")
    assert g.shifted is not None
    h, v = rng.normal(size=(4, 3)), rng.normal(size=(2, 3))
    np.testing.assert_allclose(g.shifted(jnp.asarray(h), jnp.asarray(v)), h @ v.T, 1e-5)


def test_a_scalar_for_a_single_vector_must_still_be_an_array(make):
    _, g = make("return 1.0")
    with pytest.raises(UserError, match="a value of type 'float'"):
        g(jnp.ones(3))
