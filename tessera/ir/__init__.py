"""Records of every level of the program: PTX modules, traces, graphs, plans."""
