"""A backward pass to watch: recorded once, replayed in a browser."""
