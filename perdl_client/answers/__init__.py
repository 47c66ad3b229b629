"""Answers to the server's messages. A function returns an answer's content, or raises PerdlError where it refuses."""
