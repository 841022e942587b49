"""What Leadline's parts say to each other: schema, topics and encoding;
and what both daemons say to systemd."""
