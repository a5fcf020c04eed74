"""Forward-Forward networks in JAX, with the goodness function as the design choice."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ffjax.network import Network as Network
    from ffjax.network import fit as fit
    from ffjax.network import load as load

__version__ = "0.1.0"
__all__ = ["Network", "__version__", "fit", "load"]


def __getattr__(name: str) -> Any:
    # Imported on first use: `python -m ffjax.report` must start without jax.
    if name in ("Network", "fit", "load"):
        from ffjax import network

        return getattr(network, name)
    raise AttributeError(f"module 'ffjax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
