"""Single faults planted into valid PTX, by kind; `benchmarks/faults.py` has ptxas judge them."""
