"""What the commands do once `cli.py` has their arguments, and what a person at the terminal sees of it."""
