"""What notices that workers, the coordinator or the user are gone, and what outlives them."""
