"""Parts that several methods share: rows in blocks, kernels, anchors, labels, column generation."""
