"""What a grown tree comes to: values of nodes, what is measured on rows, and losses."""
