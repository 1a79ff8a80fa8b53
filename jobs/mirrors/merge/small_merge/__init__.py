"""Merge of few changes into a mirror, in this process and with Arrow."""
