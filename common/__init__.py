"""What server and clients must agree on: protocol, settings, dictionary geometry, coders, metrics."""
