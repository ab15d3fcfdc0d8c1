"""The program that runs on the ranks. It generates a dataset, reads it as deep learning does, and times each phase."""
