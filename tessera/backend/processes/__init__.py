"""Launch programs on virtual devices of the CPU backend: a process per device, or all in one."""
