"""Workloads and site profiles: the structs for their YAML files, rules for the values in these files, and the search
for the files.
"""
