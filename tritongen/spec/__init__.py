"""TOML -> Spec: reads spec files and checks their structure."""
