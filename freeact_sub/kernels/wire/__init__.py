"""What goes between a host and a kernel: its channels and their messages, the client that reads them, a cell's output."""
