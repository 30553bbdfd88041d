"""Single faults planted into valid PTX, by kind; `faults` has ptxas judge them."""
