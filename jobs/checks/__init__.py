"""The checks that run before any load. For each check, one function collects facts, and rules in
other functions judge these facts.
"""
