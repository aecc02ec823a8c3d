"""Arithmetic that several methods share: rows in blocks, kernels, k-means, graphs, eigenvectors."""
