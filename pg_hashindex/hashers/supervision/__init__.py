"""Labels, pairs, triplets and graphs of training rows, and the steps that learn codes from them."""
