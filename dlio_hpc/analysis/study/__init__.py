"""Comparison of the points of a study: best setting, main effects, scaling, and pairs of file systems."""
