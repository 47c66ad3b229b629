"""Engines: run a federation in this process, in Ray, or as a server for real clients."""
