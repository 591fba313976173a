"""What all tests share: nothing is left behind, no request leaves this machine, and real models only with `--live`."""

pytest_plugins = ["support.leaks", "support.network"]
