"""Methods that train a neural network; like the evaluation of networks, they import torch."""
