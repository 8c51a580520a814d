"""Files that TensorBoard reads: records, the few messages they hold, pictures, and the writer of all that."""
