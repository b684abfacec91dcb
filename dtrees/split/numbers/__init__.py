"""Integers whose sums are exact, and random draws that depend on identity only."""
