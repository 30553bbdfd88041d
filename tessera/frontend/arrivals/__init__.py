"""When requests come: recorded by others, or drawn.

In: `--arrivals`: a file of Azure, BurstGPT or Mooncake, or `poisson:20/s`. Out: `ir.arrivals`
records; and the other way round for Mooncake's. Imported by `simulation`, `driver` and `cli`.
"""
