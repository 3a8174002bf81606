"""One folder for each feature. Only the commands in `jobs/*.py` import features; features do not
import each other.
"""
