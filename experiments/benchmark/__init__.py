"""How fast ffjax is: against plain PyTorch, and against its matrix products alone."""
