"""Small programs, mostly trainings, whose authors did not know `characterize`. The truth is in truth.py."""
