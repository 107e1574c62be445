"""Alembic's environment: how an old journal becomes a new one."""
