"""Comparison of the points of a study: best setting, main effects, scaling, pairs of file systems."""
