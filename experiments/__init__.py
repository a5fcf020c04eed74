"""What is measured about ffjax, beside the paper's own experiments."""
