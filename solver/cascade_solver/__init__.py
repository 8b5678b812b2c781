"""The planner: thresholds, GPUs per model and parallelism, decided together.

What may live here: pure computation on plain numbers. What may not: Kubernetes objects, HTTP,
logging, clocks, files (only ``__main__`` reads and writes them). Same problem, same plan.
"""
