"""Recurrent networks: what a step computes, and Nodes for whole sequences."""
