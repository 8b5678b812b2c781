"""A simulated SGLang engine, for machines without GPUs: same command line, same HTTP surface.

What may live here: the HTTP surface, a load model on the planner's step times, seeded answers.
What may not: real inference, or anything that the product would need in production.
"""
