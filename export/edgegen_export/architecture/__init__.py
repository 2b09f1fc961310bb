"""Model architecture as data: a family's config reader, its tensor names and its tensor layouts."""
