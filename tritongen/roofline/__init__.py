"""What the steps of an operator cost: bytes, operations, and the time at the roofline of a device."""
