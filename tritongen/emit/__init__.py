"""What the modules of every family have in common: host code, configs, imports, names."""
