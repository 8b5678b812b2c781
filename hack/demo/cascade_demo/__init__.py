"""The demo: the product's main job on a real Kubernetes, from manifest to re-plan.

What may live here: steps that a user could type, and what they print. What may not: anything the
product needs; the demo only uses charts, manifests and the public API.
"""
