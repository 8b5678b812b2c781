"""Drift-watch: samples live traffic, tests it against the plan's workload, reports in status.

What may live here: reading routers' windows and cascades, statistics, the patch of
``status.drift``. What may not: planning, or any write outside ``status.drift``.
"""
