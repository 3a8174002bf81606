"""Set-up: checks of the machine, packages, jars, and their folders."""
