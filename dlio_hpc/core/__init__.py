"""The program that the ranks run: generate a dataset, read it as deep learning does, and time each phase."""
