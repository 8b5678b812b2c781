"""The operator: turns one CascadeService into running engines, and moves GPUs between them.

What may live here: reading the cluster, building the planner's problem, rendering and applying
objects, status. What may not: latency models, routing decisions, statistics of drift.
"""
