"""The forms with an underscore, which change a tensor, and `out=`."""
