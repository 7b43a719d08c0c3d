"""The costs of the steps of an operator: bytes, operations, and the time at the roofline of a device."""
