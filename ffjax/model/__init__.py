"""The network, pure: an image and a candidate label -> activations -> scores."""
