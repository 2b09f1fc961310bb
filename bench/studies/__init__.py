"""Studies: measurements of single parts of edgegen (`python -m bench.studies.NAME`)."""
