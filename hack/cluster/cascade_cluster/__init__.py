"""A real Kubernetes on one machine, for the demo and for tests.

Kept here: finding or starting a cluster, its nodes, its images, and the fixtures that hand one to
tests. Not kept here: anything that knows what the operator, the router or the engine do; for this
package they are three Dockerfiles.
"""
