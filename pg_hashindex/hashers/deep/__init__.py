"""Methods that train a neural network; torch is imported here and where models evaluate networks."""
