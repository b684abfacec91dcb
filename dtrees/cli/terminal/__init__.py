"""What a command prints, and how it fails."""
