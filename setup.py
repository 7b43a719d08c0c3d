"""The packages of a wheel: those that are there, and the templates at the top of the checkout as one of them."""

from setuptools import find_packages, setup

setup(packages=[*find_packages(include=["tritongen", "tritongen.*"]), "tritongen._templates"])
