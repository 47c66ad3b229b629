"""The federation: who takes part, who is asked, and which answers count."""
