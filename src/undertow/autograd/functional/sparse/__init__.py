"""Sparse Jacobians and Hessians: few products, chosen by colouring, instead of a row at a time."""
