"""What agents are told: text files."""
