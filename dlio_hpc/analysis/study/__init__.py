"""The points of a study compared: the best setting, main effects, scaling, pairs of file systems."""
