"""Names, tables and files of GPUs, links and profiles to `ir.plan` records, for `driver`."""
