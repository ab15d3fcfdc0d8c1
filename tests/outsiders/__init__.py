"""Small training programs of the newer formats, whose author knew neither the recorder nor `characterize`. Truth:
truth.py.
"""
