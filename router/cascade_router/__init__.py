"""The router: walks the cascade for each request, in the cluster or alone.

What may live here: request handling, judges, clients of engines, the documents it reads. What may
not: planning, manifests, knowledge of custom resources. Importing this package costs nothing.
"""
