"""The files that runs read, write and remove."""
