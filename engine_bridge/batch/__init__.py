"""Many recordings in one run."""
