"""SQL expressions over the columns of one row, on Arrow's kernels."""
