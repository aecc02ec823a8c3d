"""Learned binary codes for pgvector."""
