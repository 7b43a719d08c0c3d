"""The common code of the modules of every family: host code, configs, imports, names."""
