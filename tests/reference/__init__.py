"""Generator of the pages of docs/reference: `python -m tests.reference` writes them from models, commands and lists."""
