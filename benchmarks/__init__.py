"""Measurements, and tables that come from the package itself; run from the checkout."""
