"""What is to be grown, and the limits that follow from it."""
