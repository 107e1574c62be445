"""Alembic's entry point. Runs inside the transaction that slurm_evo.store.schema opened."""

from alembic import context

from slurm_evo.store.tables import Table

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Table.metadata,
    render_as_batch=True,  # SQLite cannot alter most columns in place
)
with context.begin_transaction():
    context.run_migrations()
