"""Workers that join a fit under way: what they take over from those that have most to do."""
