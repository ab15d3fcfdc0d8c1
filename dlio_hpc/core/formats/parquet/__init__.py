"""The format parquet."""
