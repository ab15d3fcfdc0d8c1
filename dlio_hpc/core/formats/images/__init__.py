"""Images: files that each hold an encoded picture, which libraries decode."""
