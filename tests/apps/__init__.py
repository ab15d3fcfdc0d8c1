"""Small training programs, written as people write them; they test `characterize`.

Each makes its data with `prepare DIR` and learns from them with `train DIR`. Data, model and loss are small, but real.
logs/apps has the logs that libdarshan wrote of these programs; README.md there explains how to record them again.
"""
