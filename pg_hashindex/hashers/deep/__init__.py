"""Neural networks for hashing: the only part of pg_hashindex that imports torch."""
