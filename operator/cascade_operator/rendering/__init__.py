"""Objects of one cascade as plain manifests: a module for each kind of part, no clients, no I/O."""
