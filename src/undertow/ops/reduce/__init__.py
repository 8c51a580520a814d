"""Along dimensions: sums, extrema, cumulative sums, sorting, statistics, norms, histograms."""
