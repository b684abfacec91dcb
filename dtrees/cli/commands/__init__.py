"""The commands, each as a sequence of steps."""
