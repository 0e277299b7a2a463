"""The command line: everything that prints or exits is in this folder."""
