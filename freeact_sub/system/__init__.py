"""Files, folders, processes and clean-up that hold whatever programs of others do meanwhile."""
