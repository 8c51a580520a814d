"""What people are shown of operations: words and formulas for `help`, what nodes saved; loaded when somebody asks."""
