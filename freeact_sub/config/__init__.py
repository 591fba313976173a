"""Settings: their values (`schema`, `budget`), their readers (`load`, `trust`), and the naming of errors (`section`)."""
