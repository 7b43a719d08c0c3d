"""An operator's modules, put together."""
