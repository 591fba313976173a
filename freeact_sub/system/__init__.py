"""Files, folders, processes and clean-up that stay reliable whatever other programs do meanwhile."""
