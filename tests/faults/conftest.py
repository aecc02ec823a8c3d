from fixtures.faults import _watched_statements, fault_server

__all__ = ["_watched_statements", "fault_server"]
