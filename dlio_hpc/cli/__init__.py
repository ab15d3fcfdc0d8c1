"""The command line. Only this folder prints and exits."""
