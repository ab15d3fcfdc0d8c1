"""Small programs that were written without knowledge of the method of `characterize`; their logs calibrate it."""
