"""What `help` and the reference say of operations; loaded when somebody asks."""
