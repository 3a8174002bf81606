"""The project's data: clusters, workloads, goals, broker profiles and pins, read with
`importlib.resources.files("conf")` from a checkout and from an installed wheel alike.
"""
