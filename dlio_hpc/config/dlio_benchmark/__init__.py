"""Conversion of workloads of dlio_benchmark to workloads of dlio-hpc that make the same requests."""
