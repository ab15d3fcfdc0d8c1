"""Small programs of several authors, most of them trainings; they check `characterize` after its development.

Each makes its data with `prepare DIR` and runs on them with `train DIR`. truth.py states what their texts decide.
logs/unseen has two logs of each, of two separate runs.
"""
