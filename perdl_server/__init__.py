"""The server's side: Flower's ServerApp, the PerMA strategy, matching, aggregation, results on disk."""
