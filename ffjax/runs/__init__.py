"""Runs: from cells to records, whatever happens meanwhile; README.md says more."""
