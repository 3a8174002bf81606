"""What runs: the jobs, and all that touches Spark or Kafka."""

import sys
from pathlib import Path

from jobs.setup.shadows import shadow_words

if _shadowed := shadow_words(Path(__file__).parent.parent):
    # Nothing of ours can be imported to say it better.
    sys.stderr.write(f"error: {_shadowed}\n")
    raise SystemExit(2)
