"""The text of a plan, `.tsp`, to `ir.plan` records. Imported by `driver`."""
