"""Workloads and sites: YAML files as frozen structs, their rules, and where the files are found."""
