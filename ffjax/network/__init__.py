"""The Python interface: ``ffjax.fit`` on arrays, ``Network`` and ``ffjax.load``."""

from ffjax.network.fitting import fit
from ffjax.network.history import History
from ffjax.network.network import Network, load

__all__ = ["History", "Network", "fit", "load"]
