"""How calls reach workers and the scheduler, each with a deadline."""
