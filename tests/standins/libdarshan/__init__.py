"""A libdarshan for computers that have none: each rank's Python loads it as its sitecustomize (see recorder.py)."""
