"""What type checkers must refuse: each line with an error is marked."""

from freeact_sub import Agent, Budget, Config, KernelConfig

Config(modle="x")  # wrong
Config(mode="alone")  # wrong
Config(kernel=3)  # wrong
Config(workspace=["."])  # wrong
KernelConfig(python=3)  # wrong
KernelConfig(spare=1)  # wrong
Budget(turn=1)  # wrong
Agent(output_type=int).run_sync("go").output.title  # wrong  # noqa: B018
Agent().run_sync("go").output + 1  # wrong
