"""Pictures of reports, drawn by matplotlib."""
