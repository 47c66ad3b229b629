"""Deployment: certificates, keys of members, the gateway."""
