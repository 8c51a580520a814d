"""What layers call: convolution, pooling, norms, softmax, losses, attention, embedding."""
