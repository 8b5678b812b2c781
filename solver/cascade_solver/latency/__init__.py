"""The latency model: step times of one replica, event simulation, p95 tables.

``catalogue``, ``memory`` and ``steps`` are plain Python, so that a process that only needs step
times loads neither numpy nor numba.
"""
