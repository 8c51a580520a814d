"""What may stand between a call and an operation: transformations, operation modes, autocast."""
