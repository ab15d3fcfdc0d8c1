"""Workloads and sites: YAML files as frozen structs, their rules, and the search for the files."""
