"""Networks: heads on vectors, and encoders for images."""
