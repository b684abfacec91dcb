"""Tables that commands read and write, and what is in them."""
