"""Training: layers one after another, each by its own goodness and optimiser."""
