"""The evaluation of trials: samples, exact windows, verdicts, limiting resources, tables,
charts.
"""
