"""ATen operators in the language, a module for each kind; importing this package fills the table."""

import importlib
import pkgutil

for _found in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_found.name}")
