"""Small programs, mostly trainings, whose authors knew neither the recorder nor `characterize`. Truth: truth.py."""
