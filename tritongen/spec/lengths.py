"""The assumed length of an axis. The command line's help shows it, so this module imports nothing."""

LENGTH = 4096  # if neither the spec nor the call gives one
