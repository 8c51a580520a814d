"""Looking at a run: profiles, pictures of graphs, a backward pass to watch, summaries of models."""
