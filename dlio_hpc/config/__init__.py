"""Workloads and site profiles: the structs that their YAML files are read into, the rules that they must meet, and the
search for these files.
"""
