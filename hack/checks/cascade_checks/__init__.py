"""Checks of files that are derived from others; no code of the product lives here."""
