"""Set-up: checks of this machine, packages, jars, and their folders."""
