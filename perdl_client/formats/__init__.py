"""Formats: one reader a file, and the registry that chooses it by the file's suffix."""
