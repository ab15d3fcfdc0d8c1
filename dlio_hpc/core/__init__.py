"""The program that runs on the ranks: generate a dataset, read it as deep learning does, and time each phase."""
