"""How long an axis is taken to be; the command line tells it, so this module imports nothing."""

LENGTH = 4096  # where neither a spec nor a call gives one
