"""Look at clients' files before a run, and suggest settings."""
