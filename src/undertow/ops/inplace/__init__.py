"""The forms with an underscore, which change a tensor; and those of lists of tensors (_foreach_)."""
