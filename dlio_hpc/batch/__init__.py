"""The part that runs on the login node: it writes the job script, submits it, watches the job and archives
its results.
"""
