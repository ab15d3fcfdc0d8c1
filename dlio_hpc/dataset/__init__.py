"""Datasets: locations of their files and samples, the order in which ranks read them, and the bytes to read."""
