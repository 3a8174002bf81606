"""What happened: samples, exact windows, verdict and attribution, Delta tables, charts."""
