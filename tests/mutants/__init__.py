"""make mutants: small faults that are put into modules that decide figures and verdicts, one at a time. The everyday
tests that execute the line must fail.
"""
