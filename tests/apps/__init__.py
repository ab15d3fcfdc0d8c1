"""Small training programs that really learn, as people write them: what `characterize` is held to.

Each makes its data with `prepare DIR` and learns from them with `train DIR`; data, model and loss are real, if small.
tests/logs/apps has what libdarshan saw of them; README.md there says how to record it again.
"""
