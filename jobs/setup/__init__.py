"""Set-up: checks of the machine, packages, jars, and where they are kept."""
