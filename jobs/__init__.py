"""The jobs, and all code that uses Spark or Kafka."""

import sys
from pathlib import Path

from jobs.setup.places import shadowing_problem

if _shadowed := shadowing_problem(Path(__file__).parent.parent):
    # No module of this project can be imported here, so the message is written directly.
    sys.stderr.write(f"error: {_shadowed}\n")
    raise SystemExit(2)
