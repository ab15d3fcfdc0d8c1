"""Modules that all parts use: errors and exit codes, units, YAML and JSON as structs, keys and their faults, redaction,
log files, and commands of other programs.
"""
