"""Budgets: what runs may spend and have spent."""
