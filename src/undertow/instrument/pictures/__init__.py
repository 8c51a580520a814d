"""Pictures of graphs: as text, in Graphviz's language, as SVG, in notebooks."""
