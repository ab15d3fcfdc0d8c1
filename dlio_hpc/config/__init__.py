"""Workloads and site profiles: the structs that their YAML files are read into, rules for the values in these files,
and the search for the files.
"""
