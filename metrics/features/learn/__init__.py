"""The traffic of producers, learnt from the batches and the offsets of their topics."""
