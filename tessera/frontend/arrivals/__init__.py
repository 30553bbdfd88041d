"""When requests come: recorded by others, or drawn.

In: `--arrivals`: a file of Azure, BurstGPT or Mooncake, or `poisson:20/s`. Out: `ir.arrivals`
records. Imported by `driver`.
"""
