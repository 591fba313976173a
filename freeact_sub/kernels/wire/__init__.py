"""Messages between a host and a kernel: channels, the client that reads them, a cell's output."""
