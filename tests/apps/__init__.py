"""Small programs, written as different people write them, on which `characterize` is developed and tested. Most of them
train; data, model and loss are small, but real. Four do not train, and resemble it.

Each makes its data with `prepare DIR` and runs with `train DIR`. tests/support/programs.py has the truth about each.
logs/apps has the logs that libdarshan wrote of these programs; README.md there explains how to record them again.
"""
