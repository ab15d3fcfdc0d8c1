"""Modules that all parts use: errors and exit codes, units, conversion of YAML and JSON to structs, messages about
invalid keys, redaction, log files, and calls of other programs.
"""
