"""Answers to the server's messages."""
