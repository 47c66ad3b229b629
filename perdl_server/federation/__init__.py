"""The federation: who takes part, who is asked, which answers count."""
