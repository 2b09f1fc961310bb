"""What is known before an export's long part: what would fail, and how long and how much memory it takes."""
