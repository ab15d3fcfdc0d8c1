"""Datasets: where their files and samples are, in which order ranks read them, and how many bytes that takes."""
