"""The journal: cycles, plans, actions, policies (SQLAlchemy lives here)."""
