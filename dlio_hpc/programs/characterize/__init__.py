"""Derivation of a workload from a program's Darshan logs, with the evidence for each key."""
