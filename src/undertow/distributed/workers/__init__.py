"""Processes that call each other: what `distributed.rpc` and `distributed.autograd` are built on.

future    a result that is not there yet          values   what may travel, and how it is written
agent     who waits for messages and serves them
"""
