"""Costs from first principles and published measurements: step, evaluation, checkpoint, compilation, memory, plan."""
