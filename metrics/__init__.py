"""What happened: samples, exact windows, indicators, verdict and attribution, Delta tables, charts."""
