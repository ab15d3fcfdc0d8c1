"""Workloads and site profiles: YAML files as frozen structs, the rules that they must meet, and the search for the
files.
"""
