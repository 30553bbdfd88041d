"""From PTX to Python source that runs on NumPy lanes.

In: a kernel (`ir.ptx`). Out: Python source, and the records that `simt` runs. Imported by the
neighbours in `ptx_executor`, and by `driver.trace` for tables of names.
"""
