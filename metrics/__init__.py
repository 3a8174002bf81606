"""The measurement of trials: samples, exact windows, verdict, attribution, Delta tables, charts."""
