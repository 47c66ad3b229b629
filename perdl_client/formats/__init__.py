"""Formats: one reader per file, and the registry that chooses it by the suffix."""
